// Functions of a library that is loaded when they are first used: a program runs where the library is absent, compiles
// without its headers, and tests put functions of their own in their place.
#pragma once

#include <dlfcn.h>

#include <fathom/core/error.hpp>
#include <initializer_list>

namespace fathom {

/// A library that is loaded, or what stands in for it. Stays loaded until the program ends.
struct shared_library {
    /// The address of a function by its name, or null.
    using finder = void* (*)(void* library, const char* name);

    const char* name = "";  // for people
    void* opened = nullptr;
    finder find = &dlsym;

    /// The process itself if it has the function already, else the first of the files that loads. Errors: none does,
    /// and why.
    [[nodiscard]] static shared_library open(const char* name, const char* function,
                                             std::initializer_list<const char*> files) {
        if (dlsym(RTLD_DEFAULT, function) != nullptr) return {name, RTLD_DEFAULT};
        const char* first = nullptr;
        for (const char* const file : files) {
            if (void* const library = dlopen(file, RTLD_NOW | RTLD_LOCAL)) return {name, library};
            const char* const why = dlerror();
            if (first == nullptr) first = why;
        }
        fail(name, " cannot be loaded: found ", first != nullptr ? first : "no reason", "; expected ", *files.begin(),
             " in a folder of the system or of LD_LIBRARY_PATH");
    }

    /// Sets the slot to a function, or to null where the library has none of that name.
    template <class Function> void take_if_there(Function*& slot, const char* function) const {
        slot = reinterpret_cast<Function*>(find(opened, function));
    }
    /// Errors: a function that is missing.
    template <class Function> void take(Function*& slot, const char* function) const {
        take_if_there(slot, function);
        if (slot == nullptr) fail(name, " has no function ", function, ", expected a later version");
    }
};

}  // namespace fathom
