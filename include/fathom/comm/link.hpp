// A communicator without its type: what is compiled once, whatever the ranks are, holds this.
#pragma once

#include <cstddef>
#include <fathom/comm/communicator.hpp>
#include <fathom/core/error.hpp>
#include <memory>
#include <new>
#include <utility>

namespace fathom::comm {

/// An operation under way on a link. Must be waited for before it dies.
class pending {
  public:
    pending() = default;
    template <class Handle> explicit pending(Handle&& handle) : of_(&functions_of<Handle>) {
        static_assert(sizeof(Handle) <= room && alignof(Handle) <= alignof(std::max_align_t));
        ::new (static_cast<void*>(handle_)) Handle(std::move(handle));
    }
    pending(pending&& other) noexcept : of_(std::exchange(other.of_, nullptr)) {
        if (of_ != nullptr) of_->move(handle_, other.handle_);
    }
    pending& operator=(pending&& other) noexcept {
        if (this == &other) return *this;
        end();
        of_ = std::exchange(other.of_, nullptr);
        if (of_ != nullptr) of_->move(handle_, other.handle_);
        return *this;
    }
    ~pending() { end(); }
    /// Of an operation that is done, nothing.
    void wait() {
        if (of_ != nullptr) of_->wait(handle_);
        end();
    }

  private:
    // A step begins operations and must not allocate: handles of all communicators have room here.
    static constexpr std::size_t room = 48;
    struct functions {
        void (*wait)(void*);
        void (*move)(void* to, void* from);  // which ends there
        void (*end)(void*);
    };
    template <class Handle>
    static constexpr functions functions_of{[](void* of) { static_cast<Handle*>(of)->wait(); },
                                            [](void* to, void* from) {
                                                ::new (to) Handle(std::move(*static_cast<Handle*>(from)));
                                                static_cast<Handle*>(from)->~Handle();
                                            },
                                            [](void* of) { static_cast<Handle*>(of)->~Handle(); }};
    void end() {
        if (const functions* of = std::exchange(of_, nullptr)) of->end(handle_);
    }

    const functions* of_ = nullptr;
    alignas(std::max_align_t) std::byte handle_[room];
};

/// A view of one rank's communicator, which must outlive it; without one, a world of one rank.
class link {
  public:
    link() = default;
    template <communicator C>
    explicit link(C& ranks)
        : ranks_(&ranks),
          of_(&functions_of<C>),
          recorder_(&ranks.recorder()),
          rank_(ranks.rank()),
          size_(ranks.size()) {}

    [[nodiscard]] integer rank() const { return rank_; }
    [[nodiscard]] integer size() const { return size_; }
    /// Null where there is one rank and nothing to record.
    [[nodiscard]] const flight_recorder* recorder() const { return recorder_; }
    /// Does an operation and waits for it. Alone, nothing: reductions in place, broadcasts and barriers of one rank
    /// leave everything as it is. Errors: those of the communicator; an operation that is none of these, alone.
    void run(const request& what) const {
        if (of_ != nullptr) return of_->run(ranks_, what);
        check_alone(what);
    }
    /// Begins an operation.
    [[nodiscard]] pending start(const request& what) const {
        if (of_ != nullptr) return of_->start(ranks_, what);
        check_alone(what);
        return {};
    }
    /// The ranks of one colour, ordered by key, as a link that keeps its communicator alive. All ranks call it
    /// together.
    [[nodiscard]] link split(integer colour, integer key, const char* name) const {
        return of_ != nullptr ? of_->split(ranks_, colour, key, name) : link{};
    }

  private:
    struct functions {
        void (*run)(void*, const request&);
        pending (*start)(void*, const request&);
        link (*split)(void*, integer, integer, const char*);
    };
    template <class C> static void run_on(void* to, const request& what) { static_cast<C*>(to)->run(what); }
    template <class C> static pending start_on(void* to, const request& what) {
        return pending{static_cast<C*>(to)->start(what)};
    }
    template <class C> static link split_of(void* to, integer colour, integer key, const char* name) {
        auto part = std::make_shared<C>(static_cast<C*>(to)->split(colour, key, name));
        link made{*part};
        made.owned_ = std::move(part);
        return made;
    }
    template <class C> static constexpr functions functions_of{&run_on<C>, &start_on<C>, &split_of<C>};
    static void check_alone(const request& what) {
        const bool in_place =
            what.kind == operation::all_reduce || what.kind == operation::broadcast || what.kind == operation::barrier;
        if (!in_place) fail("link: found ", name_of(what.kind), " on one rank, expected an operation in place");
    }

    void* ranks_ = nullptr;
    const functions* of_ = nullptr;
    const flight_recorder* recorder_ = nullptr;
    integer rank_ = 0, size_ = 1;
    std::shared_ptr<void> owned_;
};

}  // namespace fathom::comm
