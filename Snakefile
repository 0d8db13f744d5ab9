# DISk: skills learned one after another, as cached and resumable artefacts.
#   snakemake --cores 2 --configfile config/quick.yaml        the point robot, in minutes
#   snakemake --cores 2 results/ant/hausdorff.csv             one environment at the paper's scale
from snakemake.utils import min_version

min_version("9.27")


configfile: "config/config.yaml"
configfile: "config/envs.yaml"
configfile: "config/methods.yaml"


pathvars:
    benchmarks="logs/benchmarks",


# All rules run in the Python environment of `make setup`. With --sdm apptainer they run in this image, which is built
# from the Containerfile (docs/clusters.md).
container: "disk.sif"


include: "workflow/rules/common.smk"
include: "workflow/rules/common_cluster.smk"
include: "workflow/rules/common_figures.smk"
include: "workflow/rules/common_hierarchy.smk"
include: "workflow/rules/train.smk"
include: "workflow/rules/evaluate.smk"
include: "workflow/rules/hierarchy.smk"
include: "workflow/rules/figures.smk"
include: "workflow/rules/videos.smk"
include: "workflow/rules/live.smk"


# `make report` writes a summary of the numbers for this page, on which its report opens.
report: os.environ.get("DISK_SUMMARY", "workflow/report/workflow.rst")


rule all:
    """Tables, figures and galleries of every environment in the configuration's runs, also in MLflow."""
    default_target: True
    input:
        tables_and_figures(),
        rules.galleries.input,
        downstream_files(),
        branch(CONFIG.tracking.enabled, then="<results>/tracked.txt"),
