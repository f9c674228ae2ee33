/* Counts the operations that torch runs, for reports: those inside graphs and those that Python called.

   In: start(callable, api) and stop(). The api is sot._hook.clock_api: it says to which clock an operation belongs
        (sot/csrc/hook/clock.c). An operation without one is called by Python.
   Out: the counts of clocks. After operations that Python called, the callable is called with their number since its
        last call, and their nanoseconds; the line that runs then stands for all of them. stop() returns what was not
        told.

   The first operations are counted and reported one by one. Counting all of them would slow the program. So from then
   on a thread turns the observer on for a moment every few milliseconds, at random times. The operations of a moment
   stand for the whole time since the moment before.

   The thread holds `mutex` while it turns the observer on and off, because torch has a lock of its own there. A fork
   waits for `mutex`: a child that is born with torch's lock held would wait for ever at its next operation. In the child
   the thread is missing and the observer is off.

   Only direct calls count, not the operations that an operation is made of, and not those of the autograd
   engine. An observer of torch does not change the program's results, as a mode would. The observer runs
   without the GIL, as operations do; only the callable needs it. */
#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <ATen/record_function.h>
#include <pthread.h>

#include <atomic>
#include <chrono>
#include <condition_variable>
#include <mutex>
#include <random>
#include <thread>

namespace {

constexpr long long ALL = 5000;                        /* operations that are counted before sampling */
constexpr std::chrono::microseconds MOMENT{300};
constexpr int LEAST_PAUSE = 20000, MOST_PAUSE = 60000; /* microseconds between moments */

struct Api {
    unsigned long long *(*counter)(void);
    int *counts_all;
};

Api *api = nullptr;
PyObject *callable = nullptr; /* owned; set and cleared under the GIL */
at::CallbackHandle handle = 0;

thread_local int depth = 0;
thread_local long long began = 0; /* nanoseconds; 0: the operation is not one that Python called */
thread_local bool telling = false;

std::atomic<long long> all{0};                /* operations so far, before sampling */
std::atomic<long long> seen{0}, seen_time{0}; /* of operations that Python called, in this moment; nanoseconds */
std::atomic<long long> telling_time{0};       /* of this moment; nanoseconds */
std::atomic<long long> untold{0}, untold_time{0};

long long nanoseconds()
{
    return std::chrono::steady_clock::now().time_since_epoch() / std::chrono::nanoseconds(1);
}

/* ---- moments ------------------------------------------------------------------------------------ */

std::thread *sampler = nullptr; /* never freed: a forked process has no such thread to wait for */
std::mutex mutex;
std::condition_variable wakes;
std::atomic<bool> sampling{false};
bool ended = false;

void sample()
{
    std::minstd_rand random(1);
    std::uniform_int_distribution<int> pause(LEAST_PAUSE, MOST_PAUSE);
    std::unique_lock<std::mutex> lock(mutex);
    long long last = nanoseconds();
    double operations = 0, time = 0; /* of the last moment, in a nanosecond */
    while (!wakes.wait_for(lock, std::chrono::microseconds(pause(random)), [] { return ended; })) {
        long long start = nanoseconds();
        seen = seen_time = telling_time = 0;
        at::reenableCallback(handle);
        std::this_thread::sleep_for(MOMENT);
        at::disableCallback(handle);
        long long now = nanoseconds();
        double length = double(std::max(now - start - telling_time, 1LL));
        operations = seen / length;
        time = seen_time / length;
        untold += (long long)(operations * (now - last));
        untold_time += (long long)(time * (now - last));
        last = now;
    }
    untold += (long long)(operations * (nanoseconds() - last));
    untold_time += (long long)(time * (nanoseconds() - last));
}

void begin_sampling()
{
    std::unique_lock<std::mutex> lock(mutex);
    if (!sampling && !ended) {
        sampling = true;
        *api->counts_all = 0;
        at::disableCallback(handle);
        sampler = new std::thread(sample);
    }
}

void end_sampling()
{
    {
        std::unique_lock<std::mutex> lock(mutex);
        ended = true;
    }
    wakes.notify_all();
    if (sampler != nullptr && sampling) {
        sampler->join();
    }
    sampler = nullptr;
    sampling = false;
}

void before_fork()
{
    mutex.lock();
}

void in_parent()
{
    mutex.unlock();
}

void in_child()
{
    sampler = nullptr;
    mutex.unlock();
}

/* ---- the observer ------------------------------------------------------------------------------- */

/* Call Python. `here`: what is told ran at the line that runs now, and not at the line of the last call. An exception
   is reported and dropped: the program continues. */
void tell(int here)
{
    PyGILState_STATE gil = PyGILState_Ensure();
    if (callable != nullptr && !PyErr_Occurred()) {
        PyObject *fn = Py_NewRef(callable);
        PyObject *answer = PyObject_CallFunction(fn, "LLi", untold.exchange(0), untold_time.exchange(0), here);
        if (answer == nullptr) {
            PyErr_WriteUnraisable(fn);
        }
        Py_XDECREF(answer);
        Py_DECREF(fn);
    }
    PyGILState_Release(gil);
}

std::unique_ptr<at::ObserverContext> begins(const at::RecordFunction &fn)
{
    if (depth++ == 0 && !telling && fn.scope() == at::RecordScope::FUNCTION && !fn.isAsync()) {
        unsigned long long *counter = api->counter();
        if (counter != nullptr) {
            __atomic_fetch_add(counter, !sampling, __ATOMIC_RELAXED);
        }
        began = counter == nullptr ? nanoseconds() : 0;
        if (!sampling && ++all >= ALL) {
            begin_sampling();
        }
    }
    return nullptr;
}

void ends(const at::RecordFunction &, at::ObserverContext *)
{
    if (--depth > 0 || began == 0) {
        return;
    }
    long long passed = nanoseconds() - began;
    began = 0;
    telling = true; /* the work of the callable is not the program's */
    if (!sampling) {
        untold++;
        untold_time += passed;
        tell(1);
    } else {
        seen_time += passed;
        if (seen++ == 0) {
            long long start = nanoseconds();
            tell(0);
            telling_time += nanoseconds() - start;
        }
    }
    telling = false;
}

/* ---- Python's side ------------------------------------------------------------------------------ */

PyObject *stop(PyObject *, PyObject *)
{
    Py_BEGIN_ALLOW_THREADS
    end_sampling();
    Py_END_ALLOW_THREADS
    if (handle != 0) {
        at::removeCallback(handle);
        handle = 0;
        *api->counts_all = 0;
    }
    Py_CLEAR(callable);
    return Py_BuildValue("LL", untold.exchange(0), untold_time.exchange(0));
}

PyObject *start(PyObject *module, PyObject *args)
{
    PyObject *fn, *capsule;
    if (!PyArg_ParseTuple(args, "OO:start", &fn, &capsule)) {
        return nullptr;
    }
    if (!PyCallable_Check(fn)) {
        return PyErr_Format(PyExc_TypeError, "start needs a callable, not %R", fn);
    }
    Api *given = static_cast<Api *>(PyCapsule_GetPointer(capsule, "sot._hook.clock_api"));
    if (given == nullptr) {
        return nullptr;
    }
    Py_XDECREF(stop(module, nullptr)); /* what was not told is dropped */
    api = given;
    *api->counts_all = 1;
    callable = Py_NewRef(fn);
    all = 0;
    ended = false;
    handle = at::addGlobalCallback(at::RecordFunctionCallback(begins, ends).scopes(
        {at::RecordScope::FUNCTION, at::RecordScope::BACKWARD_FUNCTION}));
    Py_RETURN_NONE;
}

PyMethodDef methods[] = {
    {"start", start, METH_VARARGS,
     "start(fn, api): counts until stop(), and calls fn(operations, nanoseconds, here) for those that Python calls."},
    {"stop", stop, METH_NOARGS, "Stops counting; returns (operations, nanoseconds) that were not told."},
    {nullptr, nullptr, 0, nullptr},
};

PyModuleDef definition = {PyModuleDef_HEAD_INIT, "_tally", "Counts operations, for reports.", -1, methods,
                          nullptr, nullptr, nullptr, nullptr};

} // namespace

PyMODINIT_FUNC PyInit__tally(void)
{
    Py_AtExit(end_sampling);
    pthread_atfork(before_fork, in_parent, in_child);
    return PyModule_Create(&definition);
}
