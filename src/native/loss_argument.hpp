// The loss of a call: its name, or a Python loss that names a family of kernels.
#pragma once
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <string>
#include <utility>
#include <vector>

#include "arguments.hpp"

namespace leaftrace {

// A loss that has kernels of its own.
inline LossKind loss_kind(const std::string& name) {
    if (name == "squared") return LossKind::squared;
    if (name == "logistic") return LossKind::logistic;
    if (name == "poisson") return LossKind::poisson;
    if (name == "softmax") return LossKind::softmax;
    refuse("unknown loss '" + name + "'");
}
inline LossKind one_output_kind(const std::string& name) {
    const LossKind kind = loss_kind(name);
    check(kind != LossKind::softmax, "softmax has no one-output kernel");
    return kind;
}

// The family of kernels and its parameters, from `changes` of a Python loss.
struct LossFamily {
    LossKind kind;
    std::vector<double> numbers;

    explicit LossFamily(nb::handle loss) {
        std::pair<std::string, std::vector<double>> changes;
        if (!nb::try_cast(nb::getattr(loss, "changes", nb::none()), changes))
            refuse("a loss needs `changes`: the name of a family of kernels, and its numbers");
        numbers = std::move(changes.second);
        kind = kind_of(changes.first);
    }
    Index width(Index K) const { return kind == LossKind::logistic ? 2 : K; }
    void check_outputs(Index K) const {
        at_least_one(K, "outputs");
        check(K == 1 || kind > LossKind::poisson, "several outputs of a loss that has one");
    }

  private:
    LossKind kind_of(const std::string& name) const {
        static constexpr struct {
            const char* name;
            LossKind kind;
            std::size_t numbers;
        } general[] = {{"residual", LossKind::residual, 11},       {"margin", LossKind::margin, 11},
                       {"relative", LossKind::relative, 11},       {"exponentials", LossKind::exponentials, 5},
                       {"sigmoid", LossKind::sigmoid, 2},          {"pseudo-Huber", LossKind::pseudo_huber, 1},
                       {"fair", LossKind::fair, 1},                {"power", LossKind::power, 1},
                       {"squared log", LossKind::squared_log, 1}};
        for (const auto& g : general)
            if (name == g.name) {
                check_count(name, g.numbers);
                return g.kind;
            }
        const LossKind kind = loss_kind(name);
        check_count(name, 0);
        return kind;
    }
    void check_count(const std::string& name, std::size_t expected) const {
        if (numbers.size() != expected)
            refuse("loss '" + name + "' has " + std::to_string(numbers.size()) + " numbers, expected " + std::to_string(expected));
    }
};

}  // namespace leaftrace
