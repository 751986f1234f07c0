// arrivals: what has come of each landing in each form, against two coverages a landing.
#include <cstdint>
#include <vector>

#include <doctest/doctest.h>

#include <wreload/update/arrivals.hpp>

#include "../property.hpp"

namespace wr = wreload;
using wr::test::property;

namespace {

/// The form of one landing, in the plain way.
struct plain {
  wr::rect needed = {};
  wr::coverage forms[2] = {};
};

wr::rect part_of(const wr::rect& whole) {
  if (*rc::gen::inRange(0, 3) == 0) return whole;
  const auto range = [](std::int64_t begin, std::int64_t end) {
    const auto a = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(begin, end + 1));
    const auto b = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange<std::int64_t>(begin, end + 1));
    return std::pair(std::min(a, b), std::max(a, b));
  };
  const auto [row_begin, row_end] = range(whole.row_begin, whole.row_end);
  if (*rc::gen::arbitrary<bool>()) return {row_begin, row_end, whole.col_begin, whole.col_end};
  const auto [col_begin, col_end] = range(whole.col_begin, whole.col_end);
  return {row_begin, row_end, col_begin, col_end};
}

template <class Form>
std::vector<wr::rect> covered(const Form& form, const wr::rect& part) {
  std::vector<wr::rect> found;
  form.for_each_covered(part, [&](const wr::rect& each) { found.push_back(each); });
  return found;
}
template <class Form>
std::vector<wr::rect> missing(const Form& form, const wr::rect& part) {
  std::vector<wr::rect> found;
  form.for_each_missing(part, [&](const wr::rect& each) { found.push_back(each); });
  return found;
}

}  // namespace

TEST_CASE("any sequence of inserts, erases and clears equals a coverage a form") {
  property("as coverages", [] {
    wr::basic_arrivals<> arrivals;
    std::vector<plain> expected;
    const auto landings = *rc::gen::inRange<std::int32_t>(1, 5);
    arrivals.resize(static_cast<std::size_t>(landings));
    for (std::int32_t l = 0; l < landings; ++l) expected.emplace_back().needed = {3 * l, 3 * l + 1 + l % 3, l, l + 1 + 2 * l % 5};
    const auto check = [&] {
      for (std::int32_t l = 0; l < landings; ++l) {
        const plain& one = expected[static_cast<std::size_t>(l)];
        const wr::rect probe = part_of(one.needed);
        RC_ASSERT(arrivals.empty(l) == (one.forms[0].empty() && one.forms[1].empty()));
        RC_ASSERT(arrivals.is_whole(l) == (one.forms[0].contains(one.needed) || one.forms[1].contains(one.needed)));
        for (const bool stored : {false, true}) {
          const auto form = arrivals.form(l, stored, one.needed);
          const wr::coverage& same = one.forms[stored ? 1 : 0];
          RC_ASSERT(form.empty() == same.empty());
          RC_ASSERT(form.overlaps(probe) == same.overlaps(probe));
          RC_ASSERT(form.contains(probe) == same.contains(probe));
          RC_ASSERT(covered(form, probe) == covered(same, probe));
          RC_ASSERT(missing(form, probe) == missing(same, probe));
          const wr::rect beyond{probe.row_begin, one.needed.row_end + 2, 0, one.needed.col_end + 1};
          RC_ASSERT(missing(form, beyond) == missing(same, beyond));
        }
      }
    };
    const auto steps = *rc::gen::resize(rc::kNominalSize, rc::gen::inRange(1, 60));
    for (int step = 0; step < steps; ++step) {
      const auto l = *rc::gen::inRange<std::int32_t>(0, landings);
      plain& one = expected[static_cast<std::size_t>(l)];
      const bool stored = *rc::gen::arbitrary<bool>();
      wr::coverage& same = one.forms[stored ? 1 : 0];
      const wr::rect part = part_of(one.needed);
      switch (*rc::gen::inRange(0, 9)) {
        case 0:
          arrivals.clear(l);
          one.forms[0].clear();
          one.forms[1].clear();
          break;
        case 1:
        case 2:
          for (const wr::rect& each : covered(same, part)) {
            arrivals.erase(l, stored, each, one.needed);
            same.erase(each);
          }
          break;
        default:  // what has come in neither form
          for (const wr::rect& gap : missing(one.forms[0], part))
            for (const wr::rect& each : missing(one.forms[1], gap)) {
              arrivals.insert(l, stored, each, one.needed);
              same.insert(each);
            }
      }
      check();
    }
    arrivals.clear();
    for (std::int32_t l = 0; l < landings; ++l) RC_ASSERT(arrivals.empty(l));
  });
}
