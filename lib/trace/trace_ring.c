/* trace_ring.c - making, mapping and unmapping rings.
 *
 * Space is allocated in the file before it is mapped: a store into a hole of a full disk would be a
 * SIGBUS in the training job. Mappings are MADV_DONTFORK: a child's stray store faults instead of
 * mixing into its parent's events. Cost: two mappings per thread, 2 * ring bytes of addresses.
 */
#include "trace/trace_ring.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <sys/mman.h>
#include <unistd.h>

static_assert(offsetof(tocsin_ring_control, checkpoint_index) == 16, "docs/formats/trace.md");
static_assert(offsetof(tocsin_ring_control, checkpoints) == 24, "docs/formats/trace.md");
static_assert(offsetof(tocsin_ring_control, head) == 128, "docs/formats/trace.md");
static_assert(offsetof(tocsin_ring_control, tail) == 192, "docs/formats/trace.md");
static_assert(sizeof(tocsin_position) == 24, "docs/formats/trace.md");

/* Room for `bytes` more at the end of the file. */
static bool extend(int fd, uint64_t end, uint64_t bytes)
{
    if (tocsin_fault_hit(TOCSIN_FAULT_IO))
        return false;
    int result;
    do
        result = posix_fallocate(fd, (off_t)end, (off_t)bytes);
    while (result == EINTR);
    return result == 0;
}

void tocsin_ring_file_open(tocsin_ring_file *file, const char *path,
                           const tocsin_identity *identity, uint32_t dictionary_bytes,
                           uint32_t ring_bytes)
{
    assert(file && path && identity);
    *file = (tocsin_ring_file){.fd = -1, .page_bytes = (uint32_t)sysconf(_SC_PAGESIZE)};
    assert(file->page_bytes >= sizeof(tocsin_ring_control));
    int fd;
    if (tocsin_file_open(path, O_RDWR | O_CREAT | O_EXCL, 0666, &fd, NULL) != TOCSIN_OK)
        return;
    tocsin_identity described = *identity;
    described.page_bytes = file->page_bytes;
    described.dictionary_ring_bytes = dictionary_bytes;
    described.ring_bytes = ring_bytes;
    uint8_t header[TOCSIN_IDENTITY_BYTES];
    tocsin_identity_encode(&described, TOCSIN_RING_MAGIC, header);
    if (!extend(fd, 0, file->page_bytes) ||
        tocsin_file_write(fd, header, sizeof header, path, NULL) != TOCSIN_OK) {
        close(fd);
        unlink(path);
        return;
    }
    file->fd = fd;
    file->end = file->page_bytes;
}

void tocsin_ring_file_close(tocsin_ring_file *file)
{
    if (file->fd >= 0)
        close(file->fd); /* what it could report has no reader: mapped memory is not written */
    file->fd = -1;
}

/* Map `bytes` of data twice in a row behind one control page. */
static bool map_ring(tocsin_ring *ring, int fd, uint64_t offset)
{
    size_t page_bytes = ring->page_bytes;
    size_t all_bytes = page_bytes + 2 * (size_t)ring->bytes;
    if (tocsin_fault_hit(TOCSIN_FAULT_IO))
        return false;
    uint8_t *base =
        mmap(NULL, all_bytes, PROT_NONE, MAP_PRIVATE | MAP_ANONYMOUS | MAP_NORESERVE, -1, 0);
    if (base == MAP_FAILED)
        return false;
    int access = PROT_READ | PROT_WRITE;
    int kind = MAP_SHARED | MAP_FIXED;
    size_t first_bytes = page_bytes + ring->bytes;
    if (mmap(base, first_bytes, access, kind, fd, (off_t)offset) == MAP_FAILED ||
        mmap(base + first_bytes, ring->bytes, access, kind, fd, (off_t)(offset + page_bytes)) ==
            MAP_FAILED ||
        madvise(base, all_bytes, MADV_DONTFORK) != 0) {
        munmap(base, all_bytes);
        return false;
    }
    ring->control = (tocsin_ring_control *)(void *)base;
    ring->data = base + page_bytes;
    return true;
}

static bool map_anonymous_ring(tocsin_ring *ring)
{
    int fd = memfd_create("tocsin-ring", MFD_CLOEXEC);
    if (fd < 0)
        return false;
    bool mapped = extend(fd, 0, ring->page_bytes + (uint64_t)ring->bytes) && map_ring(ring, fd, 0);
    close(fd);
    return mapped;
}

tocsin_ring *tocsin_ring_new(tocsin_ring_file *file, uint32_t bytes)
{
    assert(bytes >= TOCSIN_RING_BYTES_MIN && bytes <= TOCSIN_RING_BYTES_MAX);
    assert((bytes & (bytes - 1)) == 0 && bytes % file->page_bytes == 0);
    tocsin_ring *ring = tocsin_zalloc(1, sizeof *ring);
    if (!ring)
        return NULL;
    ring->bytes = bytes;
    ring->page_bytes = file->page_bytes;
    uint64_t file_bytes = file->page_bytes + (uint64_t)bytes;
    if (file->fd >= 0 && extend(file->fd, file->end, file_bytes) &&
        map_ring(ring, file->fd, file->end)) {
        file->end += file_bytes;
        return ring;
    }
    tocsin_ring_file_close(file); /* rings lie back to back: the first one missing is the last */
    if (map_anonymous_ring(ring))
        return ring;
    tocsin_free(ring);
    return NULL;
}

void tocsin_ring_free(tocsin_ring *ring)
{
    if (!ring)
        return;
    munmap(ring->control, ring->page_bytes + 2 * (size_t)ring->bytes);
    tocsin_free(ring);
}

void tocsin_ring_start(tocsin_ring *ring, uint32_t stream, uint64_t owner, uint64_t thread)
{
    tocsin_ring_control *control = ring->control;
    assert(ring->drained.offset == ring->produced.offset);
    atomic_store_explicit(&control->state, TOCSIN_RING_UNUSED, memory_order_release);
    ring->stream = stream;
    ring->owner = owner;
    ring->thread = thread;
    ring->produced = ring->drained = (tocsin_position){0};
    ring->depth = 0;
    ring->free_until = ring->bytes;
    control->stream = stream;
    control->thread = thread;
    control->checkpoints[0] = control->checkpoints[1] = ring->drained;
    atomic_store_explicit(&control->checkpoint_index, 0, memory_order_relaxed);
    atomic_store_explicit(&control->head, 0, memory_order_relaxed);
    atomic_store_explicit(&control->tail, 0, memory_order_relaxed);
    atomic_store_explicit(&control->state, TOCSIN_RING_IN_USE, memory_order_release);
}

void tocsin_ring_release(tocsin_ring *ring, const tocsin_position *position)
{
    assert(position->offset >= ring->drained.offset);
    assert(position->offset <= tocsin_ring_head(ring));
    tocsin_ring_control *control = ring->control;
    uint32_t other = atomic_load_explicit(&control->checkpoint_index, memory_order_relaxed) ^ 1;
    control->checkpoints[other & 1] = *position;
    atomic_store_explicit(&control->checkpoint_index, other & 1, memory_order_release);
    ring->drained = *position;
    /* From here on the ring may be given to another thread. */
    atomic_store_explicit(&control->tail, position->offset, memory_order_release);
}
