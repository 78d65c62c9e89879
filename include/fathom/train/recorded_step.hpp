// What a step made, under names that no layout changes: what runs are compared by.
#pragma once

#include <algorithm>
#include <cstdint>
#include <fathom/checkpoint/safetensors.hpp>
#include <fathom/core/bytes.hpp>
#include <limits>
#include <map>
#include <mutex>
#include <span>
#include <string>
#include <utility>
#include <vector>

namespace fathom::train {

/// A matrix [rows, columns] of a step, as the ranks had it.
struct recorded_tensor {
    enum class kind { weight, forward, gradient };
    /// What one rank had: rows [row, row + rows) and columns [column, column + columns).
    struct piece {
        integer rank = 0, row = 0, column = 0, rows = 0, columns = 0;
        std::vector<double> values;
    };

    std::string name;
    kind what = kind::forward;
    integer layer = -1;     // -1: outside of layers
    std::string operation;  // that made it; of weights and gradients nothing
    integer order = 0;      // among those of its kind, in the order of computation
    integer rows = 0, columns = 0;
    std::vector<piece> pieces;

    /// As it is found and stored: gradients have the name of their parameter, weights that after "weights.".
    [[nodiscard]] std::string key() const { return (what == kind::weight ? "weights." : "") + name; }
    /// Values [rows, columns], of those that several ranks have the lowest rank's, and the rank that each is of (-1 and
    /// NaN where no rank has it).
    [[nodiscard]] std::pair<std::vector<double>, std::vector<integer>> whole() const {
        const auto size = static_cast<std::size_t>(rows * columns);
        std::pair<std::vector<double>, std::vector<integer>> all{
            std::vector<double>(size, std::numeric_limits<double>::quiet_NaN()), std::vector<integer>(size, -1)};
        for (const piece& p : pieces)
            for (integer i = 0; i < p.rows * p.columns; ++i) {
                const integer row = p.row + i / p.columns, column = p.column + i % p.columns;
                const auto at = static_cast<std::size_t>(row * columns + column);
                if (all.second[at] >= 0 && all.second[at] <= p.rank) continue;
                all.first[at] = p.values[static_cast<std::size_t>(i)];
                all.second[at] = p.rank;
            }
        return all;
    }
};

/// All of a step. Ranks that are threads of one process may take turns to add to it.
class recorded_step {
  public:
    [[nodiscard]] const std::map<std::string, recorded_tensor>& tensors() const { return tensors_; }
    /// Weights, then forward, then backward, each in the order of computation.
    [[nodiscard]] std::vector<const recorded_tensor*> in_order() const {
        std::vector<const recorded_tensor*> all;
        for (const auto& [key, tensor] : tensors_) all.push_back(&tensor);
        std::stable_sort(all.begin(), all.end(), [](const auto* a, const auto* b) {
            return std::pair{a->what, a->order} < std::pair{b->what, b->order};
        });
        return all;
    }
    /// The tensor of that name, or nullptr.
    [[nodiscard]] const recorded_tensor* find(const std::string& key) const {
        const auto at = tensors_.find(key);
        return at == tensors_.end() ? nullptr : &at->second;
    }

    /// Adds pieces to what is there of the tensor. Errors: another shape than others said, pieces that are not in it.
    void add(recorded_tensor&& more) {
        for (const recorded_tensor::piece& p : more.pieces)
            if (p.row < 0 || p.column < 0 || p.rows > more.rows - p.row || p.columns > more.columns - p.column ||
                static_cast<integer>(p.values.size()) != p.rows * p.columns)
                fail("recorded step: ", more.key(), ": found ", p.values.size(), " numbers of rank ", p.rank,
                     " for rows ", p.row, " to ", p.row + p.rows, " and columns ", p.column, " to ",
                     p.column + p.columns, ", expected that many within ", more.rows, " x ", more.columns);
        const auto [at, is_new] = tensors_.try_emplace(more.key());
        recorded_tensor& to = at->second;
        if (is_new) {
            to = std::move(more);
            return;
        }
        if (to.rows != more.rows || to.columns != more.columns)
            fail("recorded step: ", at->first, ": found ", more.rows, " rows and ", more.columns, " columns, expected ",
                 to.rows, " and ", to.columns, " as on other ranks");
        for (auto& p : more.pieces) to.pieces.push_back(std::move(p));
    }
    /// Adds all that another one has: of one rank at a time.
    void take(recorded_step&& other) {
        const std::lock_guard lock{mutex_};
        for (auto& [key, tensor] : other.tensors_) add(std::move(tensor));
        other.tensors_.clear();
    }

    /// Stores all that ranks have of every tensor, [rows, columns] in double.
    void write(const std::string& path) const {
        std::vector<std::vector<double>> numbers;
        for (const auto& [key, tensor] : tensors_) {
            auto [values, ranks] = tensor.whole();
            if (std::count(ranks.begin(), ranks.end(), -1) > 0)
                fail("recorded step: ", key, ": found numbers that no rank had, expected all");
            numbers.push_back(std::move(values));
        }
        std::vector<safetensors::stored_tensor> stored;
        std::size_t i = 0;
        for (const auto& [key, tensor] : tensors_)
            stored.push_back({key,
                              safetensors::dtype::f64,
                              {tensor.rows, tensor.columns},
                              std::as_bytes(std::span{numbers[i++]}),
                              {}});
        safetensors::write(path, stored);
    }
    /// Reads what a file has, from this library or elsewhere: any of the tensors of `like` under their keys, of any
    /// shape with as many numbers whose last extent is that many columns (or of one extent). Errors: a name that `like`
    /// has not, another shape; names both.
    void read(const std::string& path, const recorded_step& like) {
        const safetensors::file from{path};
        for (const safetensors::stored_tensor& stored : from.tensors()) {
            const recorded_tensor* of = like.find(stored.name);
            if (of == nullptr)
                fail(stored.place(), "found no such tensor in the step, expected names such as ", examples(like));
            const bool shaped = stored.shape.size() <= 1 || stored.shape.back() == of->columns;
            if (!shaped || static_cast<integer>(stored.size()) != of->rows * of->columns)
                fail(stored.place(), "found shape ", safetensors::text_of_shape(stored.shape), ", expected [", of->rows,
                     ", ", of->columns, "]");
            recorded_tensor mine = *of;
            mine.pieces.assign(1, {0, 0, 0, of->rows, of->columns, std::vector<double>(stored.size())});
            safetensors::read_as(stored, std::span{mine.pieces[0].values});
            add(std::move(mine));
        }
        if (tensors_.empty()) fail(path, ": found no tensors, expected names such as ", examples(like));
    }

  private:
    /// One name of each kind.
    static std::string examples(const recorded_step& like) {
        std::map<recorded_tensor::kind, std::string> names;
        for (const recorded_tensor* tensor : like.in_order()) names[tensor->what] = tensor->key();
        std::string text;
        for (const auto& [what, name] : names) text += (text.empty() ? "" : ", ") + name;
        return text;
    }

    std::map<std::string, recorded_tensor> tensors_;
    std::mutex mutex_;
};

}  // namespace fathom::train
