"""What happens once, after all rules are known and before Snakemake plans anything."""


def check_targets():
    """Refuse targets that nothing makes, and say what was probably meant."""
    names = {each.name for each in workflow.rules}
    files = {os.path.basename(path) for each in workflow.rules for path in each.output}
    for target in map(os.path.normpath, invocation.targets()):
        made = target in names or any(
            each.is_producer(target) for each in workflow.rules
        )
        if made or os.path.isfile(target):
            continue
        advice = disk.config.targets.advise(
            target, str(RESULTS), CONFIG.environments, CONFIG.methods, names, files
        )
        if advice:
            raise WorkflowError(advice)


def claim_results():
    """Lock the results; refuse them if a Snakemake of another directory works on them."""
    try:
        return disk.storage.lock.claim(RESULTS)
    except disk.errors.ArtefactError as error:
        raise WorkflowError(str(error))


# Snakemake reads its targets after the workflow. Those of a module's parent are its own.
if workflow.is_main_process and workflow.modifier.parent_modifier is None:
    check_targets()
# While a workflow is read, `workflow.dryrun` is always False.
changes = not workflow.output_settings.dryrun and not invocation.only_reads()
if workflow.is_main_process and changes:
    # The kernel frees these locks when this Snakemake ends. If it was killed, the next one removes its remains.
    ALIVE = disk.storage.lock.stay_alive(Path(".snakemake/locks").absolute())
    CLAIM = claim_results()
if workflow.is_main_process:
    check_worlds()
