/* sot._tensors: compares the metadata of tensors, in a few nanoseconds each. Moves fake tensors to other storages.

   In: an example, and which of its sizes and strides matter. Out: a specification, and whether a value meets it:
   class, dispatch keys (conjugate and negative bits are among them), dtype, device, sizes, strides, requires_grad.

   It reads torch's C++ objects by torch's headers, so it fits only the torch that it was built for.
   sot/torch_compat/native.py compiles it on first use. Without it torch's slower guards are used
   (guards/slow_tensors.c). */

#define PY_SSIZE_T_CLEAN
#include <Python.h>

#include <c10/core/TensorImpl.h>
#include <c10/core/impl/LocalDispatchKeySet.h>
#include <torch/csrc/autograd/variable.h>

#include <list>
#include <utility>
#include <vector>

#include "guards/guards.h"

namespace {

using torch::autograd::AutogradMeta;

/* The offsets of the C++ tensor's address in a Python tensor, and of autograd's data in the C++ tensor. They are found
   by searching, because torch has moved the first and declares the second private. */
Py_ssize_t impl_offset = 0, autograd_offset = 0;

template <typename Found>
Found *pointer_at(const void *object, Py_ssize_t offset)
{
    return *reinterpret_cast<Found *const *>(static_cast<const char *>(object) + offset);
}

inline c10::TensorImpl *impl_of(PyObject *tensor) { return pointer_at<c10::TensorImpl>(tensor, impl_offset); }

inline const AutogradMeta *autograd_of(const c10::TensorImpl *impl)
{
    return pointer_at<AutogradMeta>(impl, autograd_offset);
}

constexpr int64_t ANY = -1; /* sizes are never negative, and torch makes no negative strides */

/* Equal specifications are one object: most tensors of a model are alike, and the specification stays in the cache. */
struct Spec {
    PyTypeObject *type;
    uint64_t keys;
    c10::ScalarType dtype;
    c10::Device device;
    bool requires_grad;
    std::vector<int64_t> numbers; /* sizes, then strides */
    Py_ssize_t users;

    bool operator==(const Spec &other) const
    {
        return type == other.type && keys == other.keys && dtype == other.dtype && device == other.device
            && requires_grad == other.requires_grad && numbers == other.numbers;
    }

    int64_t dim() const { return static_cast<int64_t>(numbers.size()) / 2; }
};

std::list<Spec> specs;

/* Fields that torch shows to derived classes. They are read without torch's test for tensors of other kinds, which
   have other dispatch keys. */
struct Fields : c10::TensorImpl {
    static constexpr auto layout = &Fields::sizes_and_strides_;
    static constexpr auto dtype = &Fields::data_type_;
    static constexpr auto device = &Fields::device_opt_;
};

/* As torch does, but without two calls for tensors that are not views. */
inline bool requires_grad(const c10::TensorImpl *impl)
{
    const AutogradMeta *meta = autograd_of(impl);
    return meta != nullptr && (meta->requires_grad_ || meta->grad_fn_ || (meta->is_view_ && meta->requires_grad()));
}

inline bool same(const int64_t *expected, const int64_t *found, int64_t count)
{
    int64_t differs = 0;
    for (int64_t i = 0; i < count; i++) {
        differs |= expected[i] ^ found[i];
    }
    if (differs == 0) {
        return true;
    }
    for (int64_t i = 0; i < count; i++) {
        if (expected[i] != found[i] && expected[i] != ANY) {
            return false;
        }
    }
    return true;
}

inline bool matches(const TensorCheck &check)
{
    const Spec &spec = *static_cast<const Spec *>(check.spec);
    if (Py_TYPE(check.value) != spec.type) {
        return false;
    }
    c10::TensorImpl *impl = impl_of(check.value);
    if (impl->key_set().raw_repr() != spec.keys) {
        return false;
    }
    const auto &layout = impl->*Fields::layout;
    const auto &device = impl->*Fields::device;
    const int64_t dim = spec.dim(), *numbers = spec.numbers.data();
    return static_cast<int64_t>(layout.size()) == dim && same(numbers, layout.sizes_data(), dim)
        && same(numbers + dim, layout.strides_data(), dim) && impl->*Fields::dtype == spec.dtype
        && device.has_value() && *device == spec.device
        && requires_grad(impl) == spec.requires_grad;
}

int all_match(const TensorCheck *checks, int count)
{
    for (int i = 0; i < count; i++) {
        if (!matches(checks[i])) {
            return 0;
        }
    }
    return 1;
}

void thread_keys(unsigned long long keys[2])
{
    c10::impl::LocalDispatchKeySet local = c10::impl::tls_local_dispatch_key_set();
    keys[0] = local.included_.raw_repr();
    keys[1] = local.excluded_.raw_repr();
}

TensorApi api = {all_match, thread_keys};

/* ---- Python -------------------------------------------------------------------------------------------- */

void free_spec(PyObject *capsule)
{
    void *memory = PyCapsule_GetPointer(capsule, TENSOR_SPEC_NAME);
    for (auto spec = specs.begin(); spec != specs.end(); ++spec) {
        if (&*spec == memory && --spec->users == 0) {
            PyTypeObject *type = spec->type;
            specs.erase(spec);
            Py_DECREF(type);
            return;
        }
    }
}

/* The one object for this specification. */
Spec *share(Spec &&made)
{
    for (Spec &spec : specs) {
        if (spec == made) {
            spec.users++;
            return &spec;
        }
    }
    Py_INCREF(made.type);
    specs.push_front(std::move(made));
    return &specs.front();
}

/* A tuple of integers and None. */
bool read_numbers(PyObject *tuple, std::vector<int64_t> &numbers)
{
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(tuple); i++) {
        PyObject *item = PyTuple_GET_ITEM(tuple, i);
        numbers.push_back(Py_IsNone(item) ? ANY : PyLong_AsLongLong(item));
    }
    return !PyErr_Occurred();
}

/* Tensors whose sizes are at the offset of the header, and describe their storage completely. */
bool is_plain(const c10::TensorImpl *impl)
{
    return impl->layout() == c10::kStrided && !impl->is_python_dispatch() && !impl->is_nested()
        && !impl->has_symbolic_sizes_strides()
        && !impl->key_set().has_any(c10::DispatchKeySet(c10::DispatchKey::FuncTorchGradWrapper)
                                    | c10::DispatchKeySet(c10::DispatchKey::FuncTorchBatched)
                                    | c10::DispatchKeySet(c10::DispatchKey::Functionalize));
}

PyObject *spec(PyObject *, PyObject *args)
{
    PyObject *example, *sizes, *strides, *tensor_class;
    if (!PyArg_ParseTuple(args, "OO!O!O!:spec", &example, &PyTuple_Type, &sizes, &PyTuple_Type, &strides,
                          &PyType_Type, &tensor_class)) {
        return nullptr;
    }
    if (!PyObject_TypeCheck(example, reinterpret_cast<PyTypeObject *>(tensor_class)) || !is_plain(impl_of(example))) {
        Py_RETURN_NONE;
    }
    const c10::TensorImpl *impl = impl_of(example);
    Spec made{Py_TYPE(example), impl->key_set().raw_repr(), c10::typeMetaToScalarType(impl->dtype()), impl->device(),
              impl->requires_grad(), {}, 1};
    if (!read_numbers(sizes, made.numbers) || !read_numbers(strides, made.numbers)) {
        return nullptr;
    }
    if (PyTuple_GET_SIZE(sizes) != impl->dim() || PyTuple_GET_SIZE(strides) != impl->dim()) {
        PyErr_SetString(PyExc_ValueError, "a tensor has as many sizes and strides as it has dimensions");
        return nullptr;
    }
    return PyCapsule_New(share(std::move(made)), TENSOR_SPEC_NAME, free_spec);
}

PyObject *meets(PyObject *, PyObject *args)
{
    PyObject *capsule, *value;
    if (!PyArg_ParseTuple(args, "OO:meets", &capsule, &value)) {
        return nullptr;
    }
    void *memory = PyCapsule_GetPointer(capsule, TENSOR_SPEC_NAME);
    TensorCheck check{memory, 0, value};
    return memory != nullptr ? PyBool_FromLong(matches(check)) : nullptr;
}

/* Hooks of tensors in Python have an object in autograd's data. So has a dict of hooks that has become empty. */
PyObject *may_have_hooks(PyObject *, PyObject *args)
{
    PyObject *tensors, *indices;
    if (!PyArg_ParseTuple(args, "O!O!:may_have_hooks", &PyTuple_Type, &tensors, &PyTuple_Type, &indices)) {
        return nullptr;
    }
    for (Py_ssize_t i = 0; i < PyTuple_GET_SIZE(indices); i++) {
        Py_ssize_t index = PyLong_AsSsize_t(PyTuple_GET_ITEM(indices, i));
        if (index < 0 || index >= PyTuple_GET_SIZE(tensors)) {
            PyErr_SetString(PyExc_IndexError, "may_have_hooks: there is no such tensor");
            return nullptr;
        }
        const AutogradMeta *meta = autograd_of(impl_of(PyTuple_GET_ITEM(tensors, index)));
        if (meta != nullptr && (!meta->hooks_.empty() || meta->post_acc_grad_hooks_ != nullptr)) {
            Py_RETURN_TRUE;
        }
    }
    Py_RETURN_FALSE;
}

PyObject *versions(PyObject *, PyObject *args)
{
    PyObject *values, *tensor_class;
    if (!PyArg_ParseTuple(args, "O!O!:versions", &PyTuple_Type, &values, &PyType_Type, &tensor_class)) {
        return nullptr;
    }
    PyObject *found = PyList_New(0);
    for (Py_ssize_t i = 0; found != nullptr && i < PyTuple_GET_SIZE(values); i++) {
        PyObject *value = PyTuple_GET_ITEM(values, i);
        if (!PyObject_TypeCheck(value, reinterpret_cast<PyTypeObject *>(tensor_class)) || impl_of(value)->is_inference()) {
            continue;
        }
        PyObject *version = PyLong_FromUnsignedLong(impl_of(value)->version_counter().current_version());
        if (version == nullptr || PyList_Append(found, version) < 0) {
            Py_CLEAR(found);
        }
        Py_XDECREF(version);
    }
    return found;
}

/* The offset of the address in an object; 0 if it is not between `from` and `to`. */
Py_ssize_t find(const void *address, const void *object, Py_ssize_t from, Py_ssize_t to)
{
    for (Py_ssize_t at = from; at < to; at += sizeof(void *)) {
        if (pointer_at<const void>(object, at) == address) {
            return at;
        }
    }
    return 0;
}

/* A storage without data, of the size of another. */
c10::Storage storage_like(const c10::Storage &other)
{
    return c10::make_intrusive<c10::StorageImpl>(c10::StorageImpl::use_byte_size_t(), other.sym_nbytes(),
                                                 at::DataPtr(nullptr, other.device()), other.allocator(),
                                                 other.resizable());
}

PyObject *move_to_storage(PyObject *, PyObject *args)
{
    PyObject *tensor = nullptr, *source = nullptr;
    if (!PyArg_ParseTuple(args, "OO", &tensor, &source)) {
        return nullptr;
    }
    try {
        c10::TensorImpl *impl = impl_of(tensor);
        impl->set_storage_keep_dtype(source == Py_None ? storage_like(impl->storage()) : impl_of(source)->storage());
        if (!impl->is_inference()) {
            impl->set_version_counter(c10::VariableVersion(0)); /* a copy of a tensor shares its counter */
        }
    } catch (const std::exception &e) {
        PyErr_SetString(PyExc_RuntimeError, e.what());
        return nullptr;
    }
    Py_RETURN_NONE;
}

/* Finds the offsets, by a tensor. False with an exception. */
bool find_offsets(PyObject *torch)
{
    PyObject *tensor = PyObject_CallMethod(torch, "empty", "i", 1);
    PyObject *number = tensor != nullptr ? PyObject_GetAttrString(tensor, "_cdata") : nullptr;
    auto *impl = number != nullptr ? static_cast<c10::TensorImpl *>(PyLong_AsVoidPtr(number)) : nullptr;
    if (impl != nullptr) {
        impl->set_requires_grad(true);
        impl_offset = find(impl, tensor, sizeof(PyObject), 48);
        autograd_offset = find(impl->autograd_meta(), impl, sizeof(void *), sizeof(c10::TensorImpl));
    }
    Py_XDECREF(number);
    Py_XDECREF(tensor);
    bool found = impl_offset != 0 && autograd_offset != 0;
    if (!found && !PyErr_Occurred()) {
        PyErr_SetString(PyExc_ImportError, "sot._tensors: this version of torch has a different layout of tensors");
    }
    return found;
}

PyMethodDef methods[] = {
    {"spec", spec, METH_VARARGS,
     "spec(example, sizes, strides, torch.Tensor): a specification; None in sizes and strides matches any. None if "
     "the example is not a plain tensor."},
    {"meets", meets, METH_VARARGS, "meets(spec, value): whether the value is such a tensor."},
    {"may_have_hooks", may_have_hooks, METH_VARARGS,
     "may_have_hooks(tensors, indices): whether tensors of a tuple, those with these indices, may have hooks for their "
     "gradients."},
    {"versions", versions, METH_VARARGS,
     "versions(values, torch.Tensor): the versions of the tensors of a tuple, but of those of inference mode, which "
     "have none."},
    {"move_to_storage", move_to_storage, METH_VARARGS,
     "move_to_storage(fake, source): lets a tensor without data use the storage of another one, or, if source is None, "
     "a new storage of the same size. Sizes and strides stay; the version is 0."},
    {nullptr, nullptr, 0, nullptr},
};

struct PyModuleDef definition = {
    PyModuleDef_HEAD_INIT, "sot._tensors", "Compares the metadata of tensors. Moves fake tensors to other storages.", -1, methods,
    nullptr, nullptr, nullptr, nullptr,
};

} // namespace

PyMODINIT_FUNC PyInit__tensors(void)
{
    PyObject *torch = PyImport_ImportModule("torch");
    bool ready = torch != nullptr && find_offsets(torch);
    Py_XDECREF(torch);
    PyObject *module = ready ? PyModule_Create(&definition) : nullptr;
    PyObject *capsule = module != nullptr ? PyCapsule_New(&api, TENSOR_API_NAME, nullptr) : nullptr;
    if (capsule == nullptr || PyModule_AddObject(module, "api", capsule) < 0) {
        Py_XDECREF(capsule);
        Py_CLEAR(module);
    }
    return module;
}
