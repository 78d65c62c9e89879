// An operation under way as its starter holds it, the same on every kind of ranks.
#pragma once

#include <utility>

namespace fathom::comm::detail {

/// Waits for an operation, looks at it, and lets it go when it dies. `Progress` is a pointer, or like one, to what
/// moves operations on. Lives no longer than its communicator.
template <class Progress, class Operation> class owned_operation {
  public:
    owned_operation(Progress progress, Operation& op) : progress_(progress), operation_(&op) {}
    owned_operation(owned_operation&& other) noexcept
        : progress_(other.progress_), operation_(std::exchange(other.operation_, nullptr)) {}
    owned_operation& operator=(owned_operation&& other) noexcept {
        std::swap(progress_, other.progress_);
        std::swap(operation_, other.operation_);
        return *this;
    }
    ~owned_operation() {
        if (operation_ != nullptr) progress_->release(*operation_);
    }

    void wait() { progress_->wait(*operation_); }
    [[nodiscard]] bool done() { return progress_->done(*operation_); }

  private:
    Progress progress_;
    Operation* operation_;
};

}  // namespace fathom::comm::detail
