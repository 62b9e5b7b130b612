/* trace_writer.c - the producers' side: definitions and events into rings.
 *
 * emit() finds the thread's ring in a thread-local variable, writes the record into it and moves
 * the head: no lock, no system call. Definitions are interned under a lock. A thread keeps its ring
 * until it dies; then, once drained, the ring serves a later thread as a new stream.
 *
 * Invariant: between tail and head of every ring there are whole records only.
 */
#include "trace/trace_writer.h"

#include <assert.h>
#include <errno.h>
#include <fcntl.h>
#include <signal.h>
#include <stdio.h>
#include <sys/syscall.h>
#include <time.h>
#include <unistd.h>

enum {
    RING_BYTES = 1 << 20,
    BLOCK_BYTES = 256 << 10,
    BLOCK_BYTES_MIN = 192 << 10, /* holds the longest record and the longest footer */
    FLUSH_MS = 50,
    COMPRESSION_LEVEL = 1,
    THREAD_STACK_BYTES = 512 << 10,
    WAIT_NS = 50000
};

static _Atomic uint64_t last_generation;
static _Atomic uint64_t last_token;

/* This thread's ring of the writer of that generation; NULL: it could not have one. */
static _Thread_local struct {
    uint64_t generation;
    tocsin_ring *ring;
    uint64_t token; /* of the thread, unique in the process */
} own;

/* ---- rings of threads ---------------------------------------------------------------------- */

/* Its thread is gone, and with it the producer. A thread that reuses the number is another one. */
static bool is_orphan(const tocsin_ring *ring, uint64_t caller)
{
    return ring->thread == caller ||
           (syscall(SYS_tgkill, getpid(), (pid_t)ring->thread, 0) != 0 && errno == ESRCH);
}

static bool is_drained(const tocsin_ring *ring)
{
    return atomic_load_explicit(&ring->control->tail, memory_order_acquire) ==
           tocsin_ring_head(ring);
}

/* Drained is asked first because it is cheap, and again because the thread may have emitted its
 * last events and died since. */
static bool is_free(const tocsin_ring *ring, uint64_t caller)
{
    return is_drained(ring) && is_orphan(ring, caller) && is_drained(ring);
}

/* Under the lock: the ring of this thread, an orphan's, or a new one. */
static tocsin_ring *take_ring(tocsin_trace_writer *writer)
{
    uint64_t thread = (uint64_t)syscall(SYS_gettid);
    tocsin_ring *free_ring = NULL;
    for (size_t i = 0; i < writer->ring_count; ++i) {
        tocsin_ring *ring = writer->rings[i];
        if (ring->owner == own.token)
            return ring;
        if (!free_ring && is_free(ring, thread))
            free_ring = ring;
    }
    if (writer->stream_count + 1 >= TOCSIN_TRACE_STREAM_MAX)
        return NULL;
    if (free_ring) {
        writer->dead_stream_events += atomic_load(&free_ring->events);
        atomic_store(&free_ring->events, 0);
    } else {
        if (writer->ring_count == TOCSIN_RINGS_MAX)
            return NULL;
        free_ring = tocsin_ring_new(&writer->ring_file, writer->ring_bytes);
        if (!free_ring)
            return NULL;
        writer->rings[writer->ring_count++] = free_ring;
    }
    tocsin_ring_start(free_ring, ++writer->stream_count, own.token, thread);
    return free_ring;
}

static tocsin_ring *find_ring(tocsin_trace_writer *writer)
{
    if (own.generation == writer->generation)
        return own.ring;
    if (own.token == 0)
        own.token = atomic_fetch_add(&last_token, 1) + 1;
    pthread_mutex_lock(&writer->rings_lock);
    own.ring = take_ring(writer);
    own.generation = writer->generation;
    pthread_mutex_unlock(&writer->rings_lock);
    return own.ring;
}

/* Wait for the writer thread to make room. Polling keeps it free of any duty to wake us; it needs
 * about a millisecond for a ring. The rings of threads always get room, that of the dictionary does
 * not while the file takes no more. */
static void wait_for_room(tocsin_trace_writer *writer, tocsin_ring *ring, uint64_t bytes)
{
    tocsin_ring_refresh(ring);
    if (tocsin_ring_has_room(ring, bytes))
        return;
    uint64_t started_ns = tocsin_clock_ns();
    while (!tocsin_ring_has_room(ring, bytes)) {
        if (ring == writer->dictionary && atomic_load(&writer->dictionary_stuck))
            break;
        tocsin_writer_poke(writer);
        nanosleep(&(struct timespec){.tv_nsec = WAIT_NS}, NULL);
        tocsin_ring_refresh(ring);
    }
    atomic_fetch_add_explicit(&writer->wait_ns, tocsin_clock_ns() - started_ns,
                              memory_order_relaxed);
}

/* Wake the writer thread when the ring is half full, before anybody has to wait. */
static void poke_if_half_full(tocsin_trace_writer *writer, tocsin_ring *ring)
{
    uint64_t half = ring->bytes / 2;
    if (tocsin_ring_has_room(ring, half))
        return;
    tocsin_ring_refresh(ring);
    if (!tocsin_ring_has_room(ring, half))
        tocsin_writer_poke(writer);
}

/* ---- events -------------------------------------------------------------------------------- */

static uint64_t innermost_call(const tocsin_ring *ring)
{
    if (ring->depth == 0)
        return 0;
    uint32_t kept = ring->depth < TOCSIN_RING_DEPTH_MAX ? ring->depth : TOCSIN_RING_DEPTH_MAX;
    return ring->open[kept - 1];
}

/* Close `call` and all calls in it whose end was never seen. A call of another thread, or one
 * closed already, closes nothing. */
static void close_call(tocsin_ring *ring, uint64_t call)
{
    uint32_t depth = ring->depth;
    if (depth > TOCSIN_RING_DEPTH_MAX) {
        if (call > ring->open[TOCSIN_RING_DEPTH_MAX - 1]) {
            ring->depth = depth - 1;
            return;
        }
        depth = TOCSIN_RING_DEPTH_MAX;
    }
    while (depth > 0 && ring->open[depth - 1] > call)
        --depth;
    if (depth > 0 && ring->open[depth - 1] == call)
        ring->depth = depth - 1;
}

static uint64_t emit(tocsin_trace_writer *writer, tocsin_ring *ring, const tocsin_event *event,
                     uint64_t time_ns)
{
    if (!tocsin_ring_has_room(ring, TOCSIN_TRACE_EVENT_MAX))
        wait_for_room(writer, ring, TOCSIN_TRACE_EVENT_MAX);

    tocsin_frame frame = {.depth = ring->depth};
    frame.time_ns = time_ns > ring->produced.time_ns ? time_ns : ring->produced.time_ns;
    switch (event->kind) {
    case TOCSIN_EVENT_ENTER:
        frame.call = ++ring->produced.calls;
        if (ring->depth < TOCSIN_RING_DEPTH_MAX)
            ring->open[ring->depth] = frame.call;
        ++ring->depth;
        break;
    case TOCSIN_EVENT_EXIT:
    case TOCSIN_EVENT_RAISE:
        frame.call = event->call;
        close_call(ring, event->call);
        break;
    default:
        frame.call = innermost_call(ring);
    }
    size_t record_bytes =
        tocsin_record_encode(event, &frame, &ring->produced, tocsin_ring_next(ring));
    ring->produced.time_ns = frame.time_ns;
    atomic_store_explicit(&ring->events,
                          atomic_load_explicit(&ring->events, memory_order_relaxed) + 1,
                          memory_order_relaxed);
    tocsin_ring_publish(ring, record_bytes);
    poke_if_half_full(writer, ring);
    return frame.call;
}

static uint64_t count_lost(tocsin_trace_writer *writer)
{
    atomic_fetch_add_explicit(&writer->lost, 1, memory_order_relaxed);
    return 0;
}

uint64_t tocsin_trace_emit(tocsin_trace_writer *writer, const tocsin_event *event)
{
    assert(writer && event && !writer->borrowed);
    tocsin_ring *ring = find_ring(writer);
    if (!ring)
        return count_lost(writer);
    return emit(writer, ring, event, event->time_ns ? event->time_ns : tocsin_clock_ns());
}

/* The ring of a stream of a writer with an identity; NULL when it cannot have one. */
static tocsin_ring *ring_of_stream(tocsin_trace_writer *writer, uint32_t stream)
{
    if (stream == 0 || stream > writer->ring_count + 1 || stream > TOCSIN_RINGS_MAX)
        return NULL;
    if (stream <= writer->ring_count)
        return writer->rings[stream - 1];
    tocsin_ring *ring = tocsin_ring_new(&writer->ring_file, writer->ring_bytes);
    if (!ring)
        return NULL;
    tocsin_ring_start(ring, stream, 0, 0);
    pthread_mutex_lock(&writer->rings_lock);
    writer->stream_count = stream;
    writer->rings[writer->ring_count++] = ring;
    pthread_mutex_unlock(&writer->rings_lock);
    return ring;
}

uint64_t tocsin_trace_emit_on(tocsin_trace_writer *writer, uint32_t stream,
                              const tocsin_event *event)
{
    assert(writer && event && writer->borrowed);
    tocsin_ring *ring = ring_of_stream(writer, stream);
    if (!ring)
        return count_lost(writer);
    uint64_t time_ns = tocsin_writer_clock_ns(writer);
    if (event->time_ns > time_ns) {
        time_ns = event->time_ns;
        atomic_store(&writer->time_ns, time_ns);
    }
    return emit(writer, ring, event, time_ns);
}

uint64_t tocsin_writer_clock_ns(tocsin_trace_writer *writer)
{
    return writer->borrowed ? atomic_load(&writer->time_ns) : tocsin_clock_ns();
}

void tocsin_trace_writer_statistics(const tocsin_trace_writer *writer,
                                    tocsin_trace_statistics *statistics)
{
    assert(writer && statistics);
    tocsin_trace_writer *shared = (tocsin_trace_writer *)writer; /* for its lock */
    *statistics = (tocsin_trace_statistics){.lost = atomic_load(&writer->lost),
                                            .raw_bytes = atomic_load(&writer->raw_bytes),
                                            .file_bytes = atomic_load(&writer->file_bytes),
                                            .wait_ns = atomic_load(&writer->wait_ns)};
    pthread_mutex_lock(&shared->rings_lock);
    statistics->events = writer->dead_stream_events;
    for (size_t i = 0; i < writer->ring_count; ++i)
        statistics->events += atomic_load(&writer->rings[i]->events);
    pthread_mutex_unlock(&shared->rings_lock);
}

/* ---- the dictionary ------------------------------------------------------------------------ */

/* The id of the definition, appended to stream 0 when it is new. */
static tocsin_id define_locked(tocsin_trace_writer *writer, uint8_t kind, const uint8_t *content,
                               size_t bytes)
{
    tocsin_intern *table = &writer->definitions[kind];
    uint32_t known = tocsin_intern_find(table, content, bytes);
    if (known)
        return known;
    tocsin_ring *ring = writer->dictionary;
    wait_for_room(writer, ring, TOCSIN_TRACE_RECORD_MAX);
    if (!tocsin_ring_has_room(ring, TOCSIN_TRACE_RECORD_MAX))
        return 0;
    tocsin_id id = tocsin_intern_put(table, content, bytes);
    if (id == 0)
        return 0;
    uint8_t *record = tocsin_ring_next(ring);
    record[2] = kind;
    size_t record_bytes = 3 + tocsin_varint_put(record + 3, id);
    memcpy(record + record_bytes, content, bytes);
    record_bytes += bytes;
    assert(record_bytes <= TOCSIN_TRACE_RECORD_MAX);
    tocsin_put_u16(record, (uint16_t)(record_bytes - 2));
    tocsin_ring_publish(ring, record_bytes);
    poke_if_half_full(writer, ring);
    return id;
}

static tocsin_id define(tocsin_trace_writer *writer, uint8_t kind, const void *content,
                        size_t bytes)
{
    pthread_mutex_lock(&writer->dictionary_lock);
    tocsin_id id = define_locked(writer, kind, content, bytes);
    pthread_mutex_unlock(&writer->dictionary_lock);
    return id;
}

tocsin_id tocsin_trace_define_string(tocsin_trace_writer *writer, const char *text, size_t bytes)
{
    assert(writer && (text || bytes == 0));
    if (bytes > TOCSIN_TRACE_STRING_MAX)
        bytes = TOCSIN_TRACE_STRING_MAX;
    return define(writer, TOCSIN_DEFINE_STRING, bytes ? text : "", bytes);
}

static tocsin_id define_text(tocsin_trace_writer *writer, const char *text)
{
    return tocsin_trace_define_string(writer, text, strlen(text));
}

/* Definitions of up to three numbers. */
static tocsin_id define_numbers(tocsin_trace_writer *writer, uint8_t kind, uint64_t first,
                                uint64_t second, uint64_t third, size_t count)
{
    uint8_t content[3 * TOCSIN_VARINT_BYTES_MAX];
    size_t bytes = tocsin_varint_put(content, first);
    bytes += tocsin_varint_put(content + bytes, second);
    if (count == 3)
        bytes += tocsin_varint_put(content + bytes, third);
    return define(writer, kind, content, bytes);
}

tocsin_id tocsin_trace_define_function(tocsin_trace_writer *writer, const char *name,
                                       tocsin_role role)
{
    assert(writer && name);
    tocsin_id name_id = define_text(writer, name);
    return name_id ? define_numbers(writer, TOCSIN_DEFINE_FUNCTION, name_id, role, 0, 2) : 0;
}

tocsin_id tocsin_trace_define_variable(tocsin_trace_writer *writer, const char *name,
                                       tocsin_variable_kind kind, const char *type)
{
    assert(writer && name && type);
    tocsin_id name_id = define_text(writer, name);
    tocsin_id type_id = define_text(writer, type);
    if (!name_id || !type_id)
        return 0;
    return define_numbers(writer, TOCSIN_DEFINE_VARIABLE, name_id, kind, type_id, 3);
}

bool tocsin_trace_variable_is(tocsin_trace_writer *writer, tocsin_id variable, const char *name)
{
    size_t bytes, name_bytes = strlen(name);
    uint64_t name_id = 0;
    const char *text = NULL;
    pthread_mutex_lock(&writer->dictionary_lock);
    const char *content =
        tocsin_intern_text(&writer->definitions[TOCSIN_DEFINE_VARIABLE], variable, &bytes);
    if (content && tocsin_varint_get((const uint8_t *)content, bytes, &name_id) > 0)
        text = tocsin_intern_text(&writer->definitions[TOCSIN_DEFINE_STRING], (uint32_t)name_id,
                                  &bytes);
    pthread_mutex_unlock(&writer->dictionary_lock);
    return text && bytes == name_bytes && memcmp(text, name, bytes) == 0;
}

tocsin_id tocsin_trace_define_shape(tocsin_trace_writer *writer, uint32_t ndim,
                                    const int64_t *sizes)
{
    assert(writer && (sizes || ndim == 0));
    uint8_t content[(1 + TOCSIN_NDIM_MAX) * TOCSIN_VARINT_BYTES_MAX];
    if (ndim > TOCSIN_NDIM_MAX)
        return 0;
    size_t bytes = tocsin_varint_put(content, ndim);
    for (uint32_t i = 0; i < ndim; ++i)
        bytes += tocsin_varint_put(content + bytes, (uint64_t)sizes[i]);
    return define(writer, TOCSIN_DEFINE_SHAPE, content, bytes);
}

tocsin_id tocsin_trace_define_site(tocsin_trace_writer *writer, const char *file, uint32_t line,
                                   const char *function)
{
    assert(writer && file && function);
    tocsin_id file_id = define_text(writer, file);
    tocsin_id function_id = define_text(writer, function);
    if (!file_id || !function_id)
        return 0;
    return define_numbers(writer, TOCSIN_DEFINE_SITE, file_id, line, function_id, 3);
}

/* ---- opening and closing ------------------------------------------------------------------- */

static uint32_t round_up(uint32_t bytes, uint32_t least)
{
    uint32_t rounded = least;
    while (rounded < bytes && rounded < TOCSIN_RING_BYTES_MAX)
        rounded *= 2;
    return rounded;
}

static void free_writer(tocsin_trace_writer *writer)
{
    if (!writer)
        return;
    for (size_t i = 0; i < writer->ring_count; ++i)
        tocsin_ring_free(writer->rings[i]);
    tocsin_ring_free(writer->dictionary);
    tocsin_ring_file_close(&writer->ring_file);
    if (writer->fd >= 0)
        close(writer->fd);
    for (size_t i = 0; i < TOCSIN_DEFINE_KINDS; ++i)
        tocsin_intern_free(&writer->definitions[i]);
    tocsin_compressor_free(writer->compressor);
    tocsin_free(writer->block);
    tocsin_free(writer->trace_path);
    tocsin_free(writer->ring_path);
    tocsin_free(writer);
}

/* A host name as part of a file name. */
static void append_host(tocsin_string *path, const char *host)
{
    if (!host[0])
        host = "unknown";
    for (; *host; ++host) {
        bool plain = (*host >= 'a' && *host <= 'z') || (*host >= 'A' && *host <= 'Z') ||
                     (*host >= '0' && *host <= '9') || *host == '.' || *host == '_';
        tocsin_string_append_char(path, plain ? *host : '_');
    }
}

/* Create the trace file under the first free name, and name the ring file after it. */
static tocsin_status create_files(tocsin_trace_writer *writer, const char *directory,
                                  const tocsin_identity *identity, tocsin_error *error)
{
    tocsin_string stem = {0};
    tocsin_string_printf(&stem, "%s/process-", directory);
    append_host(&stem, identity->host);
    tocsin_string_printf(&stem, "-%llu", (unsigned long long)identity->pid);
    size_t stem_bytes = stem.bytes;
    tocsin_status status = tocsin_string_check(&stem, error);
    for (unsigned n = 1; status == TOCSIN_OK; ++n) {
        tocsin_string_append_text(&stem, ".trace");
        status = tocsin_string_check(&stem, error);
        if (status == TOCSIN_OK)
            status =
                tocsin_file_open(stem.text, O_RDWR | O_CREAT | O_EXCL, 0666, &writer->fd, error);
        if (status != TOCSIN_E_EXISTS || n == UINT16_MAX)
            break;
        stem.bytes = stem_bytes;
        tocsin_string_printf(&stem, "-%u", n + 1);
        status = tocsin_string_check(&stem, error);
    }
    if (status == TOCSIN_OK) {
        size_t suffix = stem.bytes - strlen(".trace");
        writer->trace_path = tocsin_copy_text(stem.text, stem.bytes);
        memcpy(stem.text + suffix, ".ring", sizeof ".ring");
        writer->ring_path = tocsin_copy_text(stem.text, suffix + strlen(".ring"));
        if (!writer->trace_path || !writer->ring_path) {
            memcpy(stem.text + suffix, ".trace", sizeof ".trace");
            unlink(stem.text);
            status = tocsin_error_memory(error);
        }
    }
    tocsin_string_free(&stem);
    return status;
}

/* No boot id and no start time: nobody is taken for this process. */
static void identity_of(const tocsin_trace_identity *given, tocsin_identity *identity)
{
    *identity = (tocsin_identity){.pid = (uint64_t)given->pid,
                                  .wall_ns = given->wall_ns,
                                  .monotonic_ns = given->monotonic_ns};
    snprintf(identity->host, sizeof identity->host, "%s", given->host ? given->host : "");
}

static tocsin_status open_files(tocsin_trace_writer *writer,
                                const tocsin_trace_writer_options *options, tocsin_error *error)
{
    tocsin_identity identity;
    uint8_t header[TOCSIN_IDENTITY_BYTES];
    const char *directory = options->directory;
    if (options->identity)
        identity_of(options->identity, &identity);
    else
        tocsin_identity_of_self(&identity);
    atomic_store(&writer->time_ns, identity.monotonic_ns);
    TOCSIN_TRY(create_files(writer, directory, &identity, error));
    tocsin_identity_encode(&identity, TOCSIN_TRACE_MAGIC, header);
    TOCSIN_TRY(tocsin_file_write(writer->fd, header, sizeof header, writer->trace_path, error));
    writer->file_end = sizeof header;
    atomic_store(&writer->file_bytes, sizeof header);
    tocsin_ring_file_open(&writer->ring_file, writer->ring_path, &identity,
                          TOCSIN_DICTIONARY_RING_BYTES, writer->ring_bytes);
    writer->dictionary = tocsin_ring_new(&writer->ring_file, TOCSIN_DICTIONARY_RING_BYTES);
    if (!writer->dictionary)
        return tocsin_error_memory(error);
    tocsin_ring_start(writer->dictionary, TOCSIN_STREAM_DICTIONARY, 0, 0);
    return TOCSIN_OK;
}

/* The writer thread takes no signal: they belong to the job's threads. */
static tocsin_status start_thread(tocsin_trace_writer *writer, tocsin_error *error)
{
    sigset_t all;
    sigset_t before;
    pthread_attr_t attributes;
    int failure = tocsin_fault_hit(TOCSIN_FAULT_MEMORY) ? ENOMEM : 0;
    if (!failure)
        failure = pthread_attr_init(&attributes);
    if (!failure) {
        sigfillset(&all);
        pthread_sigmask(SIG_SETMASK, &all, &before);
        (void)pthread_attr_setstacksize(&attributes, THREAD_STACK_BYTES);
        failure = pthread_create(&writer->thread, &attributes, tocsin_writer_thread, writer);
        pthread_sigmask(SIG_SETMASK, &before, NULL);
        pthread_attr_destroy(&attributes);
    }
    if (failure)
        return tocsin_error_set(error, TOCSIN_E_MEMORY, "no thread for the trace writer");
    (void)pthread_setname_np(writer->thread, "tocsin-writer");
    return TOCSIN_OK;
}

static void init_locks(tocsin_trace_writer *writer)
{
    /* With default attributes none of these can fail on Linux. */
    (void)pthread_mutex_init(&writer->dictionary_lock, NULL);
    (void)pthread_mutex_init(&writer->rings_lock, NULL);
    (void)pthread_mutex_init(&writer->flush_lock, NULL);
    (void)pthread_cond_init(&writer->flush_done, NULL);
    (void)sem_init(&writer->wake, 0, 0);
}

tocsin_status tocsin_trace_writer_open(const tocsin_trace_writer_options *options,
                                       tocsin_trace_writer **result, tocsin_error *error)
{
    assert(result);
    *result = NULL;
    if (!options || options->struct_bytes != sizeof *options || !options->directory)
        return tocsin_error_set(error, TOCSIN_E_ARGUMENT, "trace writer options");
    tocsin_trace_writer *writer = tocsin_zalloc(1, sizeof *writer);
    if (!writer)
        return tocsin_error_memory(error);
    writer->fd = -1;
    writer->ring_file.fd = -1;
    writer->borrowed = options->identity != NULL;
    writer->generation = atomic_fetch_add(&last_generation, 1) + 1;
    writer->index_stride = 1;
    uint32_t page_bytes = (uint32_t)sysconf(_SC_PAGESIZE);
    uint32_t ring_least = page_bytes > TOCSIN_RING_BYTES_MIN ? page_bytes : TOCSIN_RING_BYTES_MIN;
    writer->ring_bytes =
        round_up(options->ring_bytes ? options->ring_bytes : RING_BYTES, ring_least);
    writer->block_bytes = options->block_bytes ? options->block_bytes : BLOCK_BYTES;
    if (writer->block_bytes < BLOCK_BYTES_MIN)
        writer->block_bytes = BLOCK_BYTES_MIN;
    if (writer->block_bytes > TOCSIN_BLOCK_RAW_MAX)
        writer->block_bytes = TOCSIN_BLOCK_RAW_MAX;
    writer->flush_ms = options->flush_ms ? options->flush_ms : FLUSH_MS;
    writer->block = tocsin_alloc(writer->block_bytes + TOCSIN_BLOCK_HEADER_BYTES +
                                 TOCSIN_BLOCK_TRAILER_BYTES + TOCSIN_TRACE_END_BYTES);
    writer->compressor = tocsin_compressor_new(
        options->compression_level ? options->compression_level : COMPRESSION_LEVEL);
    init_locks(writer);
    tocsin_status status = writer->block && writer->compressor ? open_files(writer, options, error)
                                                               : tocsin_error_memory(error);
    if (status == TOCSIN_OK)
        status = start_thread(writer, error);
    if (status != TOCSIN_OK) {
        if (writer->ring_path)
            unlink(writer->ring_path);
        if (writer->trace_path)
            unlink(writer->trace_path);
        free_writer(writer);
        return status;
    }
    *result = writer;
    return TOCSIN_OK;
}

tocsin_status tocsin_trace_writer_flush(tocsin_trace_writer *writer, tocsin_error *error)
{
    assert(writer);
    pthread_mutex_lock(&writer->flush_lock);
    uint64_t failures = writer->pass_failures;
    uint64_t ticket = ++writer->flush_wanted;
    tocsin_writer_poke(writer);
    while (writer->flush_answered < ticket)
        pthread_cond_wait(&writer->flush_done, &writer->flush_lock);
    tocsin_status status = TOCSIN_OK;
    if (writer->pass_failures != failures) {
        status = writer->pass_error.code;
        if (error)
            *error = writer->pass_error;
    }
    pthread_mutex_unlock(&writer->flush_lock);
    return status;
}

tocsin_status tocsin_trace_writer_close(tocsin_trace_writer *writer, tocsin_error *error)
{
    if (!writer)
        return TOCSIN_OK;
    atomic_store(&writer->stopping, true);
    sem_post(&writer->wake);
    pthread_join(writer->thread, NULL);
    tocsin_status status = writer->close_status;
    if (status != TOCSIN_OK && error)
        *error = writer->pass_error;
    if (status == TOCSIN_OK)
        status = tocsin_file_close(&writer->fd, writer->trace_path, error);
    if (status == TOCSIN_OK)
        unlink(writer->ring_path); /* else it still has what the file did not take */
    pthread_mutex_destroy(&writer->dictionary_lock);
    pthread_mutex_destroy(&writer->rings_lock);
    pthread_mutex_destroy(&writer->flush_lock);
    pthread_cond_destroy(&writer->flush_done);
    sem_destroy(&writer->wake);
    free_writer(writer);
    return status;
}

void tocsin_trace_writer_abandon(tocsin_trace_writer *writer)
{
    if (!writer)
        return;
    /* Only the descriptors, which are copies. The rest may have been halfway through a change by a
     * thread that does not exist here: it stays, unread, until the process ends. */
    close(writer->fd);
    if (writer->ring_file.fd >= 0)
        close(writer->ring_file.fd);
}
