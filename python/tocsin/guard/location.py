"""Where a checkpoint lies: what a save may replace, what lies beside it until then, how it gets to
the disk, and whether that disk outlives the node.
"""

import os
import shutil

from tocsin.messages import say

_LOCAL_FILE_SYSTEMS = frozenset("btrfs ext2 ext3 ext4 f2fs overlay ramfs tmpfs xfs zfs".split())
_warned = set()


# ---- names -------------------------------------------------------------------------------------


def _destination(path):
    """(as given, where it leads): a link stays one, what it leads to is replaced."""
    path = os.fsdecode(path)
    return path, os.path.realpath(path) if os.path.islink(path) else path


def of_file(path):
    """The file that a save to this path replaces."""
    path, target = _destination(path)
    if not os.path.basename(path) or os.path.isdir(target):
        raise IsADirectoryError(f"{path!r} is no name for a file")
    if os.path.exists(target) and not os.path.isfile(target):
        raise FileExistsError(f"{path} is there, and is no file")
    return target


def of_folder(path):
    """The folder that a save to this path replaces, as a whole."""
    path, target = _destination(path)
    target = target.rstrip("/") or "/"
    if os.path.lexists(target) and not os.path.isdir(target):
        raise NotADirectoryError(f"{path} is there, and is no folder")
    whole = os.path.realpath(target)
    if os.path.ismount(whole) or os.path.commonpath([whole, os.getcwd()]) == whole:
        raise ValueError(f"{path or '.'} cannot be replaced as a whole, being a mount point or "
                         "where the job runs: give a folder in it")  # fmt: skip
    return target


def shown(path):
    """A path in texts, whatever its bytes are."""
    return path and os.fsencode(path).decode(errors="backslashreplace")


def beside(path, ending):
    folder, name = os.path.split(os.path.abspath(path))
    return os.path.join(folder, f".{name}.{ending}")


# ---- files -------------------------------------------------------------------------------------


def sync(path, drop=False):
    """Make a file or folder durable. drop: let the next read come from the disk."""
    descriptor = os.open(path, os.O_RDONLY)
    try:
        os.fsync(descriptor)
        if drop:
            os.posix_fadvise(descriptor, 0, 0, os.POSIX_FADV_DONTNEED)
    finally:
        os.close(descriptor)


def remove(path):
    if os.path.isdir(path) and not os.path.islink(path):
        shutil.rmtree(path)
    elif os.path.lexists(path):
        os.remove(path)


def _link(source, target):
    try:
        os.link(source, target, follow_symlinks=False)
    except OSError:  # a file system without
        shutil.copy2(source, target, follow_symlinks=False)


def keep_others(old, new, is_own):
    """What lies in a folder that is to be replaced, and is not the checkpoint's own, is put into
    the new one, too."""
    for entry in os.scandir(old) if os.path.isdir(old) else ():
        target = os.path.join(new, entry.name)
        if is_own(entry.name) or os.path.lexists(target):
            continue
        if entry.is_dir(follow_symlinks=False):
            shutil.copytree(entry.path, target, symlinks=True, copy_function=_link)
        else:
            _link(entry.path, target)


# ---- disks -------------------------------------------------------------------------------------


def file_system(path, mounts="/proc/self/mounts"):
    """The kind of file system that a path is on; "" where that cannot be told."""
    path = os.path.realpath(path)
    best, kind = "", ""
    try:
        with open(mounts, encoding="utf-8", errors="replace") as lines:
            for line in lines:
                _, place, name, *_ = line.split()
                place = place.encode().decode("unicode_escape")
                inside = path == place or path.startswith(place.rstrip("/") + "/")
                if inside and len(place) >= len(best):
                    best, kind = place, name
    except (OSError, ValueError):
        return ""
    return kind


def warn_if_local(guard, path):
    """A node that is replaced takes its disk with it."""
    folder = os.path.dirname(os.path.abspath(path))
    hosts = len({place["host"] for place in guard.places})
    per_host = int(os.environ.get("LOCAL_WORLD_SIZE") or guard.world_size)
    kind = file_system(folder)
    if (hosts > 1 or per_host < guard.world_size) and kind in _LOCAL_FILE_SYSTEMS:
        if folder not in _warned:
            say(f"guard: {folder} is on a disk of this node ({kind}) and the job runs on "
                "several: a checkpoint there is lost with the node")  # fmt: skip
        _warned.add(folder)
