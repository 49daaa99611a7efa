/*
 * A thread that works for an event loop without the interpreter lock; part of _native.c.
 *
 * The loop hands over pieces of work, at most BACKGROUND_JOBS_MAX at a time, which are done in their order. Each is bounded: it receives
 * what a socket holds of a message, or walks over the records of one batch. The loop takes what is finished before it looks at its
 * sockets. Only when it is about to sleep does it ask to be told, by an eventfd.
 *
 *     lock        holds for some instructions; nobody calls the system or Python under it
 *     submitted   the loop's, under the lock. Jobs between `finished` and `submitted` are the thread's, all others the loop's
 *     finished    the thread's, under the lock
 *     taken       the loop's alone
 *
 * The buffer of a job is held until the job is taken, so it can neither go nor move. Its descriptor has to stay open until then:
 * that is up to the caller.
 */
#ifndef OTTLA_BACKGROUND_H
#define OTTLA_BACKGROUND_H

#include <errno.h>
#include <pthread.h>
#include <stdlib.h>
#include <sys/socket.h>
#include <unistd.h>

#define BACKGROUND_JOBS_MAX 8u
/* What may come of a batch, and the largest block of lz4 behind it. It takes room only as it is written. */
#define BACKGROUND_LIMIT (2u * 1024 * 1024)
#define BACKGROUND_MEMORY_BYTES (BACKGROUND_LIMIT + 4u * 1024 * 1024)

typedef struct {
    PyObject *key;
    Py_buffer held;
    uint8_t *data;
    size_t size;
    int descriptor; /* -1: a walk */
    int codec, count;
    size_t limit;
    size_t received;
    int error, is_end;
    int is_good;
    Summary summary;
} Job;

typedef struct {
    PyObject_HEAD
    pthread_mutex_t lock;
    pthread_cond_t wake;
    unsigned submitted, finished, taken;
    int is_running, is_closed, is_to_tell, told_by;
    uint8_t *memory;
    Job jobs[BACKGROUND_JOBS_MAX];
} Background;

static void background_receive(Job *job)
{
    while (job->received < job->size) {
        ssize_t count = recv(job->descriptor, job->data + job->received, job->size - job->received, MSG_DONTWAIT);
        if (count > 0) {
            job->received += (size_t)count;
        } else if (count == 0) {
            job->is_end = 1;
            break;
        } else if (errno != EINTR) {
            if (errno != EAGAIN && errno != EWOULDBLOCK)
                job->error = errno;
            break;
        }
    }
}

static void background_walk(Job *job, uint8_t *memory)
{
    Records records = {.memory = memory, .capacity = BACKGROUND_MEMORY_BYTES, .limit = job->limit, .count = job->count,
                       .summary = {0, 0, -1, 0, 1}};
    job->is_good = stored_walk(&records, job->codec, job->data, job->data + job->size) == 0;
    job->summary = records.summary;
}

static void background_work(Background *self)
{
    pthread_mutex_lock(&self->lock);
    while (!self->is_closed) {
        if (self->finished == self->submitted) {
            pthread_cond_wait(&self->wake, &self->lock);
            continue;
        }
        Job *job = &self->jobs[self->finished % BACKGROUND_JOBS_MAX];
        pthread_mutex_unlock(&self->lock);
        if (job->descriptor >= 0)
            background_receive(job);
        else
            background_walk(job, self->memory);
        pthread_mutex_lock(&self->lock);
        self->finished++;
        if (self->is_to_tell) {
            self->is_to_tell = 0;
            pthread_mutex_unlock(&self->lock);
            /* It cannot fail: the descriptor is open as long as this runs, and its counter is far from full. */
            uint64_t one = 1;
            ssize_t written = write(self->told_by, &one, sizeof one);
            (void)written;
            pthread_mutex_lock(&self->lock);
        }
    }
    pthread_mutex_unlock(&self->lock);
}

static PyObject *background_run(PyObject *object, PyObject *Py_UNUSED(none))
{
    Background *self = (Background *)object;
    if (self->is_running) {
        PyErr_SetString(PyExc_RuntimeError, "another thread does the work already");
        return NULL;
    }
    self->is_running = 1;
    Py_BEGIN_ALLOW_THREADS
    background_work(self);
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *background_close(PyObject *object, PyObject *Py_UNUSED(none))
{
    Background *self = (Background *)object;
    pthread_mutex_lock(&self->lock);
    self->is_closed = 1;
    pthread_cond_signal(&self->wake);
    pthread_mutex_unlock(&self->lock);
    Py_RETURN_NONE;
}

/* Takes over `job`, whose buffer is held already, or lets go of that. */
static PyObject *background_submit(Background *self, Job *job, PyObject *key)
{
    if (self->submitted - self->taken == BACKGROUND_JOBS_MAX || self->is_closed) {
        PyBuffer_Release(&job->held);
        Py_RETURN_FALSE;
    }
    Py_INCREF(key);
    job->key = key;
    self->jobs[self->submitted % BACKGROUND_JOBS_MAX] = *job;
    pthread_mutex_lock(&self->lock);
    int is_idle = self->finished == self->submitted++;
    pthread_mutex_unlock(&self->lock);
    /* Else it looks for more when it has done the one before. */
    if (is_idle)
        pthread_cond_signal(&self->wake);
    Py_RETURN_TRUE;
}

static PyObject *background_receive_into(PyObject *self, PyObject *args)
{
    Job job = {.error = 0};
    PyObject *key;
    Py_ssize_t start, size;
    if (!PyArg_ParseTuple(args, "Oiw*nn", &key, &job.descriptor, &job.held, &start, &size))
        return NULL;
    if (job.descriptor < 0 || start < 0 || size < 1 || start > job.held.len || size > job.held.len - start) {
        PyBuffer_Release(&job.held);
        PyErr_SetString(PyExc_ValueError, "no such descriptor or area");
        return NULL;
    }
    job.data = (uint8_t *)job.held.buf + start;
    job.size = (size_t)size;
    return background_submit((Background *)self, &job, key);
}

static PyObject *background_walk_records(PyObject *self, PyObject *args)
{
    Job job = {.descriptor = -1};
    PyObject *key;
    Py_ssize_t limit;
    if (!PyArg_ParseTuple(args, "Oiy*ni", &key, &job.codec, &job.held, &limit, &job.count))
        return NULL;
    if (limit < 0 || limit > BACKGROUND_LIMIT || job.count < 0) {
        PyBuffer_Release(&job.held);
        PyErr_SetString(PyExc_ValueError, "no such limit or count");
        return NULL;
    }
    job.data = job.held.buf;
    job.size = (size_t)job.held.len;
    job.limit = (size_t)limit;
    return background_submit((Background *)self, &job, key);
}

static int background_has_finished(Background *self, int is_to_tell)
{
    pthread_mutex_lock(&self->lock);
    int has_finished = self->taken != self->finished;
    self->is_to_tell = is_to_tell && !has_finished;
    pthread_mutex_unlock(&self->lock);
    return has_finished;
}

static PyObject *background_take(PyObject *object, PyObject *Py_UNUSED(none))
{
    Background *self = (Background *)object;
    if (!background_has_finished(self, 0))
        Py_RETURN_NONE;
    Job *job = &self->jobs[self->taken++ % BACKGROUND_JOBS_MAX];
    PyBuffer_Release(&job->held);
    if (job->descriptor >= 0)
        return Py_BuildValue("N(niN)", job->key, (Py_ssize_t)job->received, job->error, PyBool_FromLong(job->is_end));
    if (!job->is_good)
        return Py_BuildValue("NO", job->key, Py_None);
    Summary *found = &job->summary;
    return Py_BuildValue("N(LLiNN)", job->key, (long long)found->min_timestamp_delta, (long long)found->max_timestamp_delta,
                         (int)found->max_timestamp_offset_delta, PyBool_FromLong(found->has_null_key),
                         PyBool_FromLong(found->offsets_are_consecutive));
}

static PyObject *background_has_news(PyObject *self, PyObject *Py_UNUSED(none))
{
    return PyBool_FromLong(background_has_finished((Background *)self, 1));
}

static PyObject *background_new(PyTypeObject *type, PyObject *args, PyObject *keywords)
{
    int told_by;
    if (keywords != NULL && PyDict_Size(keywords) > 0)
        return PyErr_Format(PyExc_TypeError, "Background takes no keywords");
    if (!PyArg_ParseTuple(args, "i", &told_by))
        return NULL;
    uint8_t *memory = malloc(BACKGROUND_MEMORY_BYTES);
    if (memory == NULL)
        return PyErr_NoMemory();
    allocfunc allocate = (allocfunc)PyType_GetSlot(type, Py_tp_alloc);
    Background *self = (Background *)allocate(type, 0); /* all zero */
    if (self == NULL) {
        free(memory);
        return NULL;
    }
    self->memory = memory;
    self->told_by = told_by;
    pthread_mutex_init(&self->lock, NULL); /* neither fails without attributes */
    pthread_cond_init(&self->wake, NULL);
    return (PyObject *)self;
}

/* Nobody is in `run`: whoever calls it holds the object. */
static void background_dealloc(PyObject *object)
{
    Background *self = (Background *)object;
    PyTypeObject *type = Py_TYPE(object);
    for (; self->taken != self->submitted; self->taken++) {
        Job *job = &self->jobs[self->taken % BACKGROUND_JOBS_MAX];
        PyBuffer_Release(&job->held);
        Py_DECREF(job->key);
    }
    pthread_cond_destroy(&self->wake);
    pthread_mutex_destroy(&self->lock);
    free(self->memory);
    ((freefunc)PyType_GetSlot(type, Py_tp_free))(object);
    Py_DECREF(type);
}

static PyMethodDef background_methods[] = {
    {"run", background_run, METH_NOARGS,
     PyDoc_STR("run($self, /)\n--\n\nDo what is handed over, in this thread, until `close`.")},
    {"close", background_close, METH_NOARGS,
     PyDoc_STR("close($self, /)\n--\n\nLet `run` return. What is not begun is not done, and nothing more is taken over.")},
    {"receive_into", background_receive_into, METH_VARARGS,
     PyDoc_STR("receive_into($self, key, descriptor, buffer, start, size, /)\n--\n\n"
               "Hand over: receive into buffer[start:start + size] until it is full or there is no more now. False: no room.")},
    {"walk_records", background_walk_records, METH_VARARGS,
     PyDoc_STR("walk_records($self, key, codec, data, limit, count, /)\n--\n\n"
               "Hand over: what `walk_stored_records` does, for a limit of 2 MiB at most. False: no room.")},
    {"take", background_take, METH_NOARGS,
     PyDoc_STR("take($self, /)\n--\n\n"
               "(key, what came of it) of the next that is finished; None if there is none. Of a receipt that is (bytes, errno or 0,\n"
               "whether the stream has ended), of a walk what `walk_records` says, or None.")},
    {"has_news", background_has_news, METH_NOARGS,
     PyDoc_STR("has_news($self, /)\n--\n\nWhether any is finished. If none is, the next one adds 1 to the eventfd.")},
    {NULL, NULL, 0, NULL},
};

static PyType_Slot background_slots[] = {
    {Py_tp_doc, "Background(told_by, /)\n--\n\nWork for an event loop in a thread that calls `run`; tells it by an eventfd."},
    {Py_tp_new, background_new},
    {Py_tp_dealloc, background_dealloc},
    {Py_tp_methods, background_methods},
    {0, NULL},
};

static PyType_Spec background_spec = {
    .name = "ottla.wire._native.Background", .basicsize = sizeof(Background), .flags = Py_TPFLAGS_DEFAULT, .slots = background_slots,
};

#endif
