/* Releasing a frame that was taken before its first instruction. Who does it differs between versions of CPython: see
   hook/compat.h. */

#include "hook/hook.h"

#if PY_VERSION_HEX < 0x030C0000

void release_frame(PyThreadState *Py_UNUSED(tstate), Frame *Py_UNUSED(frame)) {}

#else

#if PY_VERSION_HEX < 0x030D0000

/* Releases the memory of the top frame. A frame at the bottom of its chunk takes the chunk along. The runtime
   allocates chunks with the arena allocator. */
static void pop_frame(PyThreadState *tstate, Frame *frame)
{
    _PyStackChunk *chunk = tstate->datastack_chunk;
    if ((PyObject **)frame != &chunk->data[0]) {
        tstate->datastack_top = (PyObject **)frame;
        return;
    }
    _PyStackChunk *below = chunk->previous;
    tstate->datastack_chunk = below;
    tstate->datastack_top = &below->data[below->top];
    tstate->datastack_limit = (PyObject **)((char *)below + below->size);
    PyObjectArenaAllocator arena;
    PyObject_GetArenaAllocator(&arena);
    arena.free(arena.ctx, chunk, chunk->size);
}

#else
#define pop_frame _PyThreadState_PopFrame
#endif

#if PY_VERSION_HEX < 0x030E0000
#define RELEASE(reference) Py_XDECREF(reference)
#define RELEASE_CODE(frame, code) Py_DECREF(code)
#else
#define RELEASE(reference) PyStackRef_XCLOSE(reference)
#define RELEASE_CODE(frame, code) PyStackRef_CLOSE((frame)->f_executable)
#endif

/* References first and memory last: a finalizer may run Python code, whose frames are pushed on top. */
void release_frame(PyThreadState *tstate, Frame *frame)
{
    PyCodeObject *code = frame_code(frame);
    int count = code->co_nlocalsplus;
    for (int i = 0; i < count; i++) {
        RELEASE(frame->localsplus[i]);
    }
    RELEASE(frame->f_funcobj);
    RELEASE_CODE(frame, code);
    pop_frame(tstate, frame);
}

#endif
