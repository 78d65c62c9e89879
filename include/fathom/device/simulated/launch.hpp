// The way to run a kernel on the CPU and have its faults found; people test their own kernels with it.
#pragma once

#include <fathom/device/simulated/block.hpp>
#include <fathom/tensor/matrix.hpp>
#include <utility>

namespace fathom::simulated {
namespace detail {

template <class T> const T& argument(machine&, int, const T& value) { return value; }
template <class T> matrix_view<T> argument(machine& m, int number, const matrix<T>& rows) {
    return {m, number, rows.data, rows.rows, rows.width, rows.stride};
}

template <class Kernel, std::size_t... Number, class... Arguments>
void run(machine& m, const Kernel& kernel, std::index_sequence<Number...>, const Arguments&... arguments) {
    m.run([&](int) {
        block here{m};
        kernel(here, argument(m, static_cast<int>(Number + 1), arguments)...);
    });
}

template <class Kernel> constexpr integer shared_bytes(const Kernel& kernel) {
    if constexpr (requires { kernel.shared_bytes(); })
        return kernel.shared_bytes();
    else
        return 0;
}

}  // namespace detail

/// Runs kernel(block, arguments...) as each of Kernel::threads threads of `blocks` blocks, one block after the other,
/// in an order that is always the same. A kernel has `name`, `threads` and, if it uses shared memory, `shared_bytes()`.
/// A `matrix<T>` of arguments becomes `rows<T>` of the block, which may only be touched within its rows; numbers stay
/// as they are. Errors, all of which name the kernel, the block and the thread: memory outside of an argument or an
/// array; addresses that are no multiple of the access; shared memory that is read before it is written, or with an
/// asynchronous copy under way; two threads at one place, one of which writes, without a barrier between them, or from
/// two blocks (unless both are atomic); threads that miss a barrier or an exchange that others wait in.
template <class Kernel, class... Arguments>
void launch(const Kernel& kernel, integer blocks, const Arguments&... arguments) {
    detail::machine machine{Kernel::name, blocks, Kernel::threads, detail::shared_bytes(kernel)};
    detail::run(machine, kernel, std::index_sequence_for<Arguments...>{}, arguments...);
}

}  // namespace fathom::simulated
