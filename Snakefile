# Snakemake finds this file first. The workflow is in workflow/Snakefile, where Snakemake's catalogue looks for it.
#   snakemake --cores 2 --configfile config/quick.yaml        the point robot, in minutes
#   snakemake --cores 2 results/ant/hausdorff.csv             one environment at the paper's scale
include: "workflow/Snakefile"


workflow.default_target = "all"  # an included file's own default does not count
