/* Differences between CPython 3.11 and 3.14 in a frame under evaluation.

   This is the only file of the hook that reads CPython's internals: a handful of fields of
   _PyInterpreterFrame and, on 3.12, the data stack of the thread. The hook touches a frame only
   before its first instruction. Such a frame has never been linked into the thread's frame stack, so
   no frame object of it can exist that would need the frame's contents. Releasing the frame means
   releasing its references and its memory. frame_is_untouched() checks all of that. A frame that
   fails the check is left to the default evaluator.

                      where it starts              who releases it
     3.11             prev_instr == first - 1      the caller of the evaluator
     3.12             prev_instr == first - 1      the evaluator
     3.13             instr_ptr == first           the evaluator
     3.14             instr_ptr == first           the evaluator

   A frame of 3.14 has tagged references instead of objects. A tag marks a reference that the frame does not own.
*/

#ifndef SOT_HOOK_COMPAT_H
#define SOT_HOOK_COMPAT_H

#if PY_VERSION_HEX < 0x030B0000 || PY_VERSION_HEX >= 0x030F0000
#error "sot._hook knows the frames of CPython 3.11 to 3.14 only"
#endif
#ifdef Py_GIL_DISABLED
#error "sot._hook relies on the GIL: free-threaded builds are not supported"
#endif

#ifndef Py_BUILD_CORE
#define Py_BUILD_CORE 1
#endif
#pragma GCC diagnostic push
#pragma GCC diagnostic ignored "-Wunused-parameter" /* in CPython's own headers */
#undef _PyGC_FINALIZED /* a macro outside of the core, a function inside of it */
#include <internal/pycore_frame.h>
#if PY_VERSION_HEX >= 0x030E0000
#include <internal/pycore_interpframe.h>
#endif
#include <internal/pycore_interp.h>
#if PY_VERSION_HEX >= 0x030C0000
#include <internal/pycore_instruments.h>
#endif
#pragma GCC diagnostic pop

typedef struct _PyInterpreterFrame Frame;

#if PY_VERSION_HEX < 0x030C0000

#define PyUnstable_Eval_RequestCodeExtraIndex _PyEval_RequestCodeExtraIndex
#define PyUnstable_Code_GetExtra _PyCode_GetExtra
#define PyUnstable_Code_SetExtra _PyCode_SetExtra

static inline PyFunctionObject *frame_function(Frame *frame) { return frame->f_func; }

/* One limit for Python and C: nothing to give back. */
#define C_RECURSION_UNITS_PER_FRAME 0
static inline void credit_c_recursion(PyThreadState *Py_UNUSED(tstate), int Py_UNUSED(units)) {}

#elif PY_VERSION_HEX < 0x030E0000

/* How much of the C recursion limit the evaluator uses; 3.12.1 sets the limit at 1500. */
#define C_RECURSION_UNITS_PER_FRAME 2
static inline void credit_c_recursion(PyThreadState *tstate, int units)
{
    tstate->c_recursion_remaining += units;
}

static inline PyFunctionObject *frame_function(Frame *frame)
{
    return (PyFunctionObject *)frame->f_funcobj;
}

#else

/* The interpreter watches the C stack itself. */
#define C_RECURSION_UNITS_PER_FRAME 0
static inline void credit_c_recursion(PyThreadState *Py_UNUSED(tstate), int Py_UNUSED(units)) {}

static inline PyFunctionObject *frame_function(Frame *frame) { return _PyFrame_GetFunction(frame); }

#endif

#if PY_VERSION_HEX < 0x030D0000

static inline PyCodeObject *frame_code(Frame *frame) { return frame->f_code; }

static inline int frame_is_at_start(Frame *frame)
{
    return frame->prev_instr == _PyCode_CODE(frame->f_code) - 1;
}

#else

#if PY_VERSION_HEX < 0x030E0000
static inline PyCodeObject *frame_code(Frame *frame) { return (PyCodeObject *)frame->f_executable; }
#else
static inline PyCodeObject *frame_code(Frame *frame) { return _PyFrame_GetCode(frame); }
#endif

static inline int frame_is_at_start(Frame *frame)
{
    return frame->instr_ptr == _PyCode_CODE(frame_code(frame));
}

#endif

/* `tracing` is set while the interpreter runs a trace function or an audit hook. Such a function is
   not code of the program, and the audited call may come from this extension. */
#if PY_VERSION_HEX < 0x030C0000

static inline int is_watched(PyThreadState *tstate)
{
    return tstate->tracing || tstate->c_tracefunc != NULL || tstate->c_profilefunc != NULL;
}

#else

/* Tool 0 of sys.monitoring is the debugger, tool 1 measures coverage. Either may request a code object's lines only
   after it has seen it start. A frame that we take does not start. */
static inline int is_watched(PyThreadState *tstate)
{
    PyInterpreterState *interp = tstate->interp;
    return tstate->tracing || tstate->c_tracefunc != NULL || tstate->c_profilefunc != NULL
        || interp->monitoring_tool_names[0] != NULL || interp->monitoring_tool_names[1] != NULL
        || interp->monitors.tools[PY_MONITORING_EVENT_LINE] || interp->monitors.tools[PY_MONITORING_EVENT_INSTRUCTION];
}

#endif

/* The same reads as PyUnstable_Code_GetExtra and _PyInterpreterState_GetEvalFrameFunc, without the calls, because this
   happens for every frame of a program. */
typedef struct {
    Py_ssize_t count;
    void *items[1];
} CodeExtras;

static inline void *code_extra(PyCodeObject *code, Py_ssize_t index)
{
    const CodeExtras *extras = code->co_extra;
    return extras != NULL && index < extras->count ? extras->items[index] : NULL;
}

static inline _PyFrameEvalFunction current_evaluator(PyThreadState *tstate)
{
    _PyFrameEvalFunction found = tstate->interp->eval_frame;
    return found != NULL ? found : _PyEval_EvalFrameDefault;
}

/* A frame on this thread's data stack, before its first instruction, with ordinary locals. */
static inline int frame_is_untouched(Frame *frame)
{
    return frame->owner == FRAME_OWNED_BY_THREAD && frame_is_at_start(frame)
        && frame->frame_obj == NULL && frame->f_locals == NULL;
}

#if PY_VERSION_HEX < 0x030E0000

/* The locals at the start, in the frame; NULL if they are elsewhere. */
static inline PyObject **frame_locals(Frame *frame) { return frame->localsplus; }

/* Copies them: borrowed. */
static inline void copy_locals(Frame *frame, PyObject **to, Py_ssize_t count)
{
    memcpy(to, frame->localsplus, count * sizeof(PyObject *));
}

#else

static inline PyObject **frame_locals(Frame *Py_UNUSED(frame)) { return NULL; }

static inline void copy_locals(Frame *frame, PyObject **to, Py_ssize_t count)
{
    for (Py_ssize_t i = 0; i < count; i++) {
        to[i] = PyStackRef_AsPyObjectBorrow(frame->localsplus[i]);
    }
}

#endif

/* Releases a frame that does not run: its references, and its memory if the evaluator owns that. */
void release_frame(PyThreadState *tstate, Frame *frame);

#endif
