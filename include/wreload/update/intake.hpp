#pragma once
/// `intake`: turns the pieces of a load into claims and jobs, or into a refusal; and counts them.

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "../core/on_use.hpp"
#include "counted_piece.hpp"
#include "model_core.hpp"
#include "options.hpp"

namespace wreload::detail {

/// Pieces that were accepted together, or not at all. Owned by a lane; buffers are reused.
struct accepted {
  admission work = {};
  std::vector<counted_piece> counted = {};
  std::vector<std::int32_t> ids = {};           ///< of the pieces' names; no_index: unknown, or in runtime form
  basic_name_order<>::cursor cursor = {};       ///< where this lane is in its sender's order

  void clear() {
    work.clear();
    counted.clear();
  }
};

/// The way from a name to claims. Under the model's lock.
template <executor Executor>
class intake {
  using admission = dependent<wreload::admission, Executor>;
  using accepted = dependent<detail::accepted, Executor>;

 public:
  explicit intake(model_core<Executor>& core) : core_(core) {}

  static status unknown(std::string_view name) {
    return refuse(error_code::unknown_name, name, "a tensor of the model, or an ignored or foreign name", "neither");
  }

  /// Claims pieces, all or none.
  status take(std::span<const piece> pieces, accepted& into) {
    into.clear();
    into.ids.resize(pieces.size());
    if (pieces.size() == 1) into.ids[0] = resolve_next(pieces[0], into.cursor);
    for (std::size_t begin = 0; pieces.size() > 1 && begin < pieces.size(); begin += block)
      resolve(pieces.subspan(begin, std::min(block, pieces.size() - begin)), into.ids.data() + begin, into.cursor);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      const auto later = [&](std::size_t steps) { return i + steps < pieces.size() ? into.ids[i + steps] : no_index; };
      if (pieces.size() > 1) core_.books.prefetch(later(12), later(8), later(4));
      if (status refused = take_one(pieces[i], into.ids[i], into); !refused.ok()) {
        core_.books.release(into.work.claims);
        return refused;
      }
    }
    prefetch_next(into.cursor);
    return {};
  }

  /// Claims tensors that were written in place, all or none: as a load of bytes whose address is not known.
  status take_in_place(std::span<const std::string_view> names, load_form form, accepted& into) {
    into.clear();
    status refused;
    for (const std::string_view name : names)
      if (refused.ok()) refused = take_one_in_place(name, form, into);
    if (refused.ok() && !into.work.compares.empty())
      refused = refuse(error_code::duplicate, names.front(), "bytes that no other name brought", "a twin's");
    if (!refused.ok()) core_.books.release(into.work.claims);
    return refused;
  }

  /// What a load of this box would do; claims nothing.
  status try_out(const piece& wanted, admission& trial) {
    const std::int32_t id = resolve(wanted);
    if (id == no_index) return unknown(wanted.name);
    const name_record name = core_.records.names[id];
    const source_record& source = at(core_.records.sources, name.source);
    const tensor_ref shaped{.data = &trial, .type = wanted.tensor.type,
                            .extents = wanted.part.whole ? source.extents : wanted.part.extent};
    status refused = core_.books.admit(name, shaped, wanted.part, trial);
    core_.books.release(trial.claims);
    if (!refused.ok()) return refused;
    const std::int64_t elements = shaped.extents.elements();
    if (trial.lands.size() == 1 && trial.compares.empty() && !shares_bytes(trial) &&
        trial.lands[0].from == trial.lands[0].to && !is_mapped(trial.landed[0].landing) &&
        trial.lands[0].rows * trial.lands[0].cols == elements)
      return {};
    return refuse(error_code::unsupported, wanted.name,
                  "one rectangle of one landing, copied as it is, in checkpoint order",
                  std::to_string(trial.lands.size()) + " landings, or a conversion");
  }

  /// Whether a claim's bytes have a second name.
  bool shares_bytes(const admission& work) const {
    if (core_.records.twin_groups.empty()) return false;
    for (const claim& part : work.claims)
      if (part.to_group) return true;
    return false;
  }

 private:
  bool is_mapped(std::int32_t landing) const {
    return at(core_.records.params, at(core_.records.landings, landing).param).map != unmapped;
  }

  std::int32_t resolve(const piece& part) const {
    if (!part.id.is_known()) return core_.records.names.find(part.name);
    return part.id.index < static_cast<std::int32_t>(core_.records.names.size()) ? part.id.index : no_index;
  }

  /// A piece that comes alone: what follows the one before it is known, mostly.
  std::int32_t resolve_next(const piece& part, basic_name_order<>::cursor& cursor) {
    if (part.form == load_form::runtime) return no_index;
    const registry& records = core_.records;
    if (!part.id.is_known())
      return core_.order.find(
          part.name, cursor, [&](std::int32_t id) { return records.names.text_of(id); },
          [&](std::string_view name) { return records.names.find(name); });
    const std::int32_t id = resolve(part);
    if (id != no_index) core_.order.follow(id, cursor);
    return id;
  }

  /// At most `block` pieces, so that what their look-ups miss in the caches is fetched for all at once.
  void resolve(std::span<const piece> pieces, std::int32_t* ids, basic_name_order<>::cursor& cursor) {
    const registry& records = core_.records;
    std::uint32_t hashes[block] = {};
    const bool is_guessed = cursor.trust > 0;
    const auto is_named = [&](std::size_t i) {
      return !pieces[i].id.is_known() && pieces[i].form != load_form::runtime;
    };
    for (std::size_t i = 0; !is_guessed && i < pieces.size(); ++i)
      if (is_named(i)) records.names.prefetch_slot(hashes[i] = name_index::hash_of(pieces[i].name));
    for (std::size_t i = 0; !is_guessed && i < pieces.size(); ++i)
      if (is_named(i)) ids[i] = records.names.prefetch_text_of(hashes[i]);
    for (std::size_t i = 0; !is_guessed && i < pieces.size(); ++i)
      if (is_named(i)) records.names.prefetch_text(ids[i]);
    for (std::size_t i = 0; i < pieces.size(); ++i) {
      if (!is_named(i)) {
        ids[i] = pieces[i].form == load_form::runtime ? no_index : resolve(pieces[i]);
        continue;
      }
      ids[i] = core_.order.find(
          pieces[i].name, cursor, [&](std::int32_t id) { return records.names.text_of(id); },
          [&](std::string_view name) {
            return records.names.find(name, is_guessed ? name_index::hash_of(name) : hashes[i]);
          });
    }
  }

  /// Starts to fetch what the loads that are expected next will read.
  void prefetch_next(basic_name_order<>::cursor& from) const {
    if (from.trust == 0) return;
    core_.order.look_ahead(from);
    core_.books.prefetch(from.expected(7), from.expected(5), from.expected(3));
    core_.records.names.prefetch_text(from.expected(2));
  }

  status take_one(const piece& part, std::int32_t id, accepted& into) {
    admission& work = into.work;
    const std::int64_t needed_before = work.needed_bytes;
    const std::size_t claims_before = work.claims.size();
    counted_piece counted{.bytes = part.tensor.extents.valid() ? part.tensor.bytes() : 0, .type = part.tensor.type};
    if (part.form == load_form::runtime) {
      const std::int32_t param = core_.records.find_param(part.name);
      if (param == no_index) return unknown(part.name);
      if (status refused = core_.books.admit_runtime(param, part.tensor, part.part, work); !refused.ok())
        return refused;
    } else if (id != no_index) {
      const name_record name = core_.records.names[id];
      if (status refused = core_.books.admit(name, part.tensor, part.part, work); !refused.ok()) return refused;
      counted.name = id;
      counted.is_first = work.claims.size() > claims_before && work.claims[claims_before].landing == no_index;
      if (work.needed_bytes == needed_before) counted.as = &report::not_needed;
      counted.is_absent = at(core_.records.sources, name.source).landings.empty();
    } else if (matches_any(core_.ignored, part.name)) {
      counted.as = &report::ignored;
    } else if (matches_any(core_.foreign, part.name)) {
      counted.as = &report::foreign;
    } else {
      return unknown(part.name);
    }
    into.counted.push_back(counted);
    return {};
  }

  status take_one_in_place(std::string_view name, load_form form, accepted& into) {
    const std::int32_t id = form == load_form::checkpoint ? core_.records.names.find(name) : no_index;
    const std::int32_t param = form == load_form::runtime ? core_.records.find_param(name) : no_index;
    if (id == no_index && param == no_index) return unknown(name);
    tensor_ref in_place{.data = &into};
    if (param != no_index) {
      in_place.type = at(core_.records.params, param).plan.spec.runtime;
      in_place.extents = at(core_.records.params, param).plan.extents;
      into.counted.push_back({.bytes = in_place.bytes(), .type = in_place.type});
      return core_.books.admit_runtime(param, in_place, {}, into.work);
    }
    const name_record record = core_.records.names[id];
    const source_record& source = at(core_.records.sources, record.source);
    in_place.extents = source.extents;
    for (const std::int32_t l : source.landings) {
      const param_record& to = at(core_.records.params, at(core_.records.landings, l).param);
      const dtype stored = to.plan.spec.stored;
      if (to.map != unmapped)
        return refuse(error_code::unsupported, name, "a landing in checkpoint order",
                      to_string(to.plan.spec.map) + " (adopt " + to.name() + " in runtime form)");
      if (in_place.type != dtype::none && in_place.type != stored)
        return refuse(error_code::unsupported, name, "landings of one dtype", "several");
      in_place.type = stored;
    }
    into.counted.push_back({.bytes = in_place.bytes(), .type = in_place.type});
    return source.landings.empty() ? status{} : core_.books.admit(record, in_place, {}, into.work);
  }

  static constexpr std::size_t block = 16;

  model_core<Executor>& core_;
};

}  // namespace wreload::detail
