/*
 * A part of ottla.wire._native: receives for an event loop, done by a thread without the interpreter lock.
 *
 * The event loop and the thread have an end of a pair of connected sockets each, through which they pass pointers to jobs. So the
 * kernel is the queue in both directions, wakes whoever sleeps, and orders what they write to a job. A job is either's alone:
 *
 *     hand_over        the loop makes a job, and writes a pointer to it
 *     serve_receives   the thread reads pointers until the loop's end is shut down, receives, and writes each back
 *     take_received    the loop reads a pointer, and frees the job
 *
 * No job waits: it takes what a socket holds, as far as there is room. Its buffer is held until it is taken, so the buffer can
 * neither go nor move. Its descriptor has to stay open until then, and nobody else may use either end: that is up to the caller.
 */
#include <errno.h>
#include <sys/socket.h>

typedef struct {
    PyObject *key;
    Py_buffer held;
    uint8_t *data;
    size_t size;
    int descriptor;
    Py_ssize_t result; /* bytes, or an errno below 0 */
} Job;

/* As many bytes as there are and have room. What is wrong behind some bytes is left to the next receive. */
static Py_ssize_t receive_now(const Job *job)
{
    size_t received = 0;
    while (received < job->size) {
        ssize_t count = recv(job->descriptor, job->data + received, job->size - received, MSG_DONTWAIT);
        if (count < 0 && errno == EINTR)
            continue;
        if (count <= 0)
            return received > 0 ? (Py_ssize_t)received : count < 0 ? -errno : 0;
        received += (size_t)count;
    }
    return (Py_ssize_t)received;
}

/* Returns the job behind the next pointer, or NULL at the end and where there is none. A pointer is written and read in one piece. */
static Job *next_job(int end, int flags)
{
    Job *job;
    ssize_t count;
    do
        count = recv(end, &job, sizeof job, flags);
    while (count < 0 && errno == EINTR);
    return count == sizeof job ? job : NULL;
}

static int pass_job(int end, Job *job, int flags)
{
    ssize_t count;
    do
        count = send(end, &job, sizeof job, flags);
    while (count < 0 && errno == EINTR);
    return count == sizeof job ? 0 : -1;
}

PyDoc_STRVAR(serve_receives_doc, "serve_receives(end, /)\n--\n\n"
                                 "Do in this thread what is handed over, until the other end is shut down.");

static PyObject *serve_receives(PyObject *Py_UNUSED(module), PyObject *argument)
{
    int end = (int)PyLong_AsLong(argument);
    if (PyErr_Occurred())
        return NULL;
    Py_BEGIN_ALLOW_THREADS
    for (Job *job; (job = next_job(end, 0)) != NULL;) {
        job->result = receive_now(job);
        while (pass_job(end, job, 0) < 0 && errno != EPIPE)
            ; /* for want of memory, which does not last */
    }
    Py_END_ALLOW_THREADS
    Py_RETURN_NONE;
}

static PyObject *let_go(Job *job, PyObject *result)
{
    PyBuffer_Release(&job->held);
    PyMem_Free(job);
    return result;
}

PyDoc_STRVAR(hand_over_doc, "hand_over(end, key, descriptor, buffer, start, size, /)\n--\n\n"
                            "Have buffer[start:start + size] filled by a socket, as far as that holds so much. OSError: it cannot be now.");

static PyObject *hand_over(PyObject *Py_UNUSED(module), PyObject *args)
{
    int end;
    Py_ssize_t start, size;
    Job *job = PyMem_Calloc(1, sizeof *job);
    if (job == NULL)
        return PyErr_NoMemory();
    if (!PyArg_ParseTuple(args, "iOiw*nn", &end, &job->key, &job->descriptor, &job->held, &start, &size))
        return let_go(job, NULL);
    if (start < 0 || size < 1 || start > job->held.len || size > job->held.len - start) {
        PyErr_SetString(PyExc_ValueError, "no such area");
        return let_go(job, NULL);
    }
    job->data = (uint8_t *)job->held.buf + start;
    job->size = (size_t)size;
    Py_INCREF(job->key);
    if (pass_job(end, job, MSG_DONTWAIT) < 0) {
        PyErr_SetFromErrno(PyExc_OSError);
        Py_DECREF(job->key);
        return let_go(job, NULL);
    }
    Py_RETURN_NONE;
}

PyDoc_STRVAR(take_received_doc, "take_received(end, /)\n--\n\n"
                                "(key, received bytes or -errno) of the next job that is done, in their order; None if there is none.");

static PyObject *take_received(PyObject *Py_UNUSED(module), PyObject *argument)
{
    int end = (int)PyLong_AsLong(argument);
    if (PyErr_Occurred())
        return NULL;
    Job *job = next_job(end, MSG_DONTWAIT);
    return job == NULL ? Py_NewRef(Py_None) : let_go(job, Py_BuildValue("Nn", job->key, job->result));
}
