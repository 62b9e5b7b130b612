"""The buckets in which DistributedDataParallel reduces gradients. Its reducer takes one hook; one
that does to a bucket what the reducer does without a hook only makes it visible.
"""

import sys


def set_hook(ddp, state, hook):
    """False: there is one, which may be torch's own. Not by register_comm_hook(): what that notes
    down in the module is copied and pickled with it."""
    try:
        sys.modules["torch"].distributed._register_comm_hook(ddp.reducer, state, hook)
    except RuntimeError:
        return False
    return True


def averaged(buffer, group):
    """As the reducer does without a hook, to the bit: the future of the average."""
    if buffer.is_sparse:
        buffer.div_(group.size())
    else:
        buffer.mul_(1.0 / group.size())
    # Looked up now: what watches or disturbs collectives stands there.
    work = sys.modules["torch"].distributed.all_reduce(buffer, group=group, async_op=True)
    return work.get_future().then(lambda future: future.value()[0])
