/* What a program keeps alive, what it only watches, and how it ends. */

#include "guards/program.h"

static PyObject *watched_died(PyObject *self, PyObject *Py_UNUSED(reference))
{
    Program *program = ((Watch *)self)->program;
    if (program != NULL && !program->dead) {
        program->dead = 1;
        entry_died(program->owner);
    }
    Py_RETURN_NONE;
}

static PyMethodDef watched_method = {"died", watched_died, METH_O, NULL};

static PyTypeObject WatchType = {
    PyVarObject_HEAD_INIT(NULL, 0)
    .tp_name = "sot._hook.Watch",
    .tp_basicsize = sizeof(Watch),
    .tp_flags = Py_TPFLAGS_DEFAULT | Py_TPFLAGS_DISALLOW_INSTANTIATION,
};

int is_mortal(PyObject *object)
{
    return PyFunction_Check(object)
        || (PyType_Check(object) && PyType_HasFeature((PyTypeObject *)object, Py_TPFLAGS_HEAPTYPE));
}

/* The callback of weak references, which belongs to this program only. A new reference. */
static PyObject *watcher(Program *p)
{
    if (p->watch == NULL) {
        if (PyType_Ready(&WatchType) < 0) {
            return NULL;
        }
        p->watch = (PyObject *)PyObject_New(Watch, &WatchType);
        if (p->watch == NULL) {
            return NULL;
        }
        ((Watch *)p->watch)->program = p;
    }
    return PyCFunction_New(&watched_method, p->watch);
}

static int watch(Program *p, PyObject *object)
{
    for (int i = 0; i < p->mortal_count; i++) {
        if (p->mortals[i] == object) {
            return 0;
        }
    }
    PyObject *callback = watcher(p);
    PyObject *reference = callback != NULL ? PyWeakref_NewRef(object, callback) : NULL;
    Py_XDECREF(callback);
    int count = p->mortal_count + 1;
    PyObject **mortals = reference != NULL ? PyMem_Realloc(p->mortals, count * sizeof(PyObject *)) : NULL;
    p->mortals = mortals != NULL ? mortals : p->mortals;
    PyObject **references = mortals != NULL ? PyMem_Realloc(p->references, count * sizeof(PyObject *)) : NULL;
    p->references = references != NULL ? references : p->references;
    if (references == NULL) {
        Py_XDECREF(reference);
        return -1;
    }
    p->mortals[count - 1] = object;
    p->references[count - 1] = reference;
    p->mortal_count = count;
    return 0;
}

/* An object that a program uses: a new reference, or a borrowed one if it is watched. NULL with an exception. */
PyObject *hold(Program *p, PyObject *object, char *weak)
{
    *weak = is_mortal(object);
    if (!*weak) {
        return Py_NewRef(object);
    }
    return watch(p, object) == 0 ? object : NULL;
}

/* The result of a lookup. -1 with an exception. */
int hold_found(Program *p, Check *check, PyObject *found)
{
    int is_own = Py_IS_TYPE(found, &PyGetSetDescr_Type) || Py_IS_TYPE(found, &PyMemberDescr_Type);
    if (is_own && is_mortal((PyObject *)PyDescr_TYPE(found))) {
        check->second = found;
        check->second_weak = 1;
        check->kind_of_second = Py_TYPE(found);
        check->owner_of_second = PyDescr_TYPE(found);
        return watch(p, (PyObject *)PyDescr_TYPE(found));
    }
    check->second = hold(p, found, &check->second_weak);
    return check->second != NULL ? 0 : -1;
}

static void unwatch(Program *p)
{
    for (int i = 0; i < p->mortal_count; i++) {
        Py_DECREF(p->references[i]);
    }
    if (p->watch != NULL) {
        ((Watch *)p->watch)->program = NULL;
        Py_DECREF(p->watch);
    }
    PyMem_Free(p->mortals);
    PyMem_Free(p->references);
}

void program_free(Program *p)
{
    if (p == NULL) {
        return;
    }
    for (int i = 0; p->nodes != NULL && i < p->count; i++) {
        if (!p->nodes[i].weak) {
            Py_XDECREF(p->nodes[i].operand);
        }
        Py_XDECREF(p->nodes[i].kept);
        stop_watching(p, p->nodes + i);
        dict_forget(&p->nodes[i].held);
    }
    for (int i = 0; i < p->check_count; i++) {
        if (!p->checks[i].weak) {
            Py_XDECREF(p->checks[i].operand);
        }
        if (!p->checks[i].second_weak) {
            Py_XDECREF(p->checks[i].second);
        }
    }
    unwatch(p);
    for (int i = 0; i < p->group_count; i++) {
        PyMem_Free(p->groups[i].members);
        PyMem_Free(p->groups[i].table);
    }
    void *parts[] = {p->nodes, p->values, p->checks, p->words, p->owners, p->live, p->live_owners, p->tensors,
                     p->pairs, p->groups};
    for (size_t i = 0; i < sizeof(parts) / sizeof(*parts); i++) {
        PyMem_Free(parts[i]);
    }
    PyMem_Free(p);
}

int program_traverse(Program *p, visitproc visit, void *arg)
{
    for (int i = 0; i < p->count; i++) {
        if (!p->nodes[i].weak) {
            Py_VISIT(p->nodes[i].operand);
        }
        Py_VISIT(p->nodes[i].kept);
    }
    for (int i = 0; i < p->check_count; i++) {
        if (!p->checks[i].weak) {
            Py_VISIT(p->checks[i].operand);
        }
        if (!p->checks[i].second_weak) {
            Py_VISIT(p->checks[i].second);
        }
    }
    return 0;
}
