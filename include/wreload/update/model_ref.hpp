#pragma once
/// `model_ref` and `update_ref`: a model and its open update with the executor's type erased, for transports and RPC.

#include <concepts>
#include <span>
#include <string_view>
#include <utility>

#include "model.hpp"

namespace wreload {

/// An open update of a model of any executor. Movable; the destructor aborts what was not finished. See `update` for
/// what each call promises; loads go through the update's own lane.
class update_ref {
 public:
  update_ref() = default;
  template <executor Executor>
  explicit update_ref(update<Executor>&& opened)
      : calls_(&calls_for<Executor>), update_(new update<Executor>(std::move(opened))) {}
  update_ref(update_ref&& other) noexcept
      : calls_(other.calls_), update_(std::exchange(other.update_, nullptr)) {}
  update_ref& operator=(update_ref&& other) noexcept {
    std::swap(calls_, other.calls_);
    std::swap(update_, other.update_);
    return *this;
  }
  ~update_ref() {
    if (update_ != nullptr) calls_->destroy(update_);
  }

  bool is_open() const { return update_ != nullptr && calls_->is_open(update_); }
  bool is_prepared() const { return update_ != nullptr && calls_->is_prepared(update_); }
  bool is_committed() const { return update_ != nullptr && calls_->is_committed(update_); }
  status load(std::span<const piece> pieces, event_ref ready = {}) {
    return update_ == nullptr ? closed() : calls_->load(update_, pieces, ready);
  }
  template <std::same_as<bucket> Bucket>  // braces mean pieces
  status load(const Bucket& from, event_ref ready = {}) {
    return update_ == nullptr ? closed() : calls_->load_bucket(update_, from, ready);
  }
  event_ref flush() { return update_ == nullptr ? event_ref{} : calls_->flush(update_); }
  status landing(std::string_view name, const box& part, dtype type, direct_landing* out) {
    return update_ == nullptr ? closed() : calls_->landing(update_, name, part, type, out);
  }
  status adopt(std::span<const std::string_view> names, load_form form) {
    return update_ == nullptr ? closed() : calls_->adopt(update_, names, form);
  }
  status retract(std::string_view name) { return update_ == nullptr ? closed() : calls_->retract(update_, name); }
  status prepare() { return update_ == nullptr ? closed() : calls_->prepare(update_); }
  status commit(event_ref* done = nullptr) { return update_ == nullptr ? closed() : calls_->commit(update_, done); }
  status settle() { return update_ == nullptr ? closed() : calls_->settle(update_); }
  status doubt() { return update_ == nullptr ? closed() : calls_->doubt(update_); }
  status publish() { return update_ == nullptr ? closed() : calls_->publish(update_); }
  status finish() { return update_ == nullptr ? closed() : calls_->finish(update_); }
  status abort() { return update_ == nullptr ? status{} : calls_->abort(update_); }
  /// Requires: the handle came from a successful `start`.
  const wreload::report& report() const { return calls_->report(update_); }

 private:
  struct calls {
    bool (*is_open)(const void*);
    status (*load)(void*, std::span<const piece>, event_ref);
    status (*load_bucket)(void*, const bucket&, event_ref);
    event_ref (*flush)(void*);
    status (*landing)(void*, std::string_view, const box&, dtype, direct_landing*);
    status (*adopt)(void*, std::span<const std::string_view>, load_form);
    status (*retract)(void*, std::string_view);
    status (*prepare)(void*);
    status (*commit)(void*, event_ref*);
    status (*settle)(void*);
    status (*doubt)(void*);
    status (*publish)(void*);
    bool (*is_prepared)(const void*);
    bool (*is_committed)(const void*);
    status (*finish)(void*);
    status (*abort)(void*);
    const wreload::report& (*report)(const void*);
    void (*destroy)(void*);
  };

  template <executor Executor>
  static update<Executor>& as(void* erased) {
    return *static_cast<update<Executor>*>(erased);
  }
  template <executor Executor>
  static const update<Executor>& as(const void* erased) {
    return *static_cast<const update<Executor>*>(erased);
  }

  template <executor E>
  static constexpr calls calls_for = {
      [](const void* u) { return as<E>(u).is_open(); },
      [](void* u, std::span<const piece> pieces, event_ref ready) { return as<E>(u).load(pieces, ready); },
      [](void* u, const bucket& from, event_ref ready) { return as<E>(u).load(from, ready); },
      [](void* u) { return as<E>(u).flush(); },
      [](void* u, std::string_view name, const box& part, dtype type, direct_landing* out) {
        return as<E>(u).landing(name, part, type, out);
      },
      [](void* u, std::span<const std::string_view> names, load_form form) { return as<E>(u).adopt(names, form); },
      [](void* u, std::string_view name) { return as<E>(u).retract(name); },
      [](void* u) { return as<E>(u).prepare(); },
      [](void* u, event_ref* done) { return as<E>(u).commit(done); },
      [](void* u) { return as<E>(u).settle(); },
      [](void* u) { return as<E>(u).doubt(); },
      [](void* u) { return as<E>(u).publish(); },
      [](const void* u) { return as<E>(u).is_prepared(); },
      [](const void* u) { return as<E>(u).is_committed(); },
      [](void* u) { return as<E>(u).finish(); },
      [](void* u) { return as<E>(u).abort(); },
      [](const void* u) -> const wreload::report& { return as<E>(u).report(); },
      [](void* u) { delete &as<E>(u); },
  };

  static status closed() { return refuse(error_code::wrong_state, {}, "an open update", "none"); }

  const calls* calls_ = nullptr;
  void* update_ = nullptr;
};

/// A model of any executor, by reference: it must outlive this and every update started through it.
class model_ref {
 public:
  template <executor Executor>
  model_ref(model<Executor>& referred) : calls_(&calls_for<Executor>), model_(&referred) {}  // NOLINT: a reference

  update_ref start(const start_options& options, status* error) { return calls_->start(model_, options, error); }
  tensor_id find(std::string_view name) const { return calls_->find(model_, name); }
  model_state state() const { return calls_->state(model_); }
  std::int64_t version() const { return calls_->version(model_); }
  std::span<const param_record> params() const { return calls_->params(model_); }
  const registry& records() const { return calls_->records(model_); }
  std::string_view executor_name() const { return calls_->executor_name; }

 private:
  struct calls {
    std::string_view executor_name;
    update_ref (*start)(void*, const start_options&, status*);
    tensor_id (*find)(const void*, std::string_view);
    model_state (*state)(const void*);
    std::int64_t (*version)(const void*);
    std::span<const param_record> (*params)(const void*);
    const registry& (*records)(const void*);
  };

  template <executor E>
  static const model<E>& as(const void* erased) {
    return *static_cast<const model<E>*>(erased);
  }
  template <executor E>
  static constexpr calls calls_for = {
      E::name,
      [](void* m, const start_options& options, status* error) {
        update<E> opened = static_cast<model<E>*>(m)->start(options, error);
        return error->ok() ? update_ref(std::move(opened)) : update_ref();
      },
      [](const void* m, std::string_view name) { return as<E>(m).find(name); },
      [](const void* m) { return as<E>(m).state(); },
      [](const void* m) { return as<E>(m).version(); },
      [](const void* m) { return as<E>(m).params(); },
      [](const void* m) -> const registry& { return as<E>(m).records(); },
  };

  const calls* calls_ = nullptr;
  void* model_ = nullptr;
};

}  // namespace wreload
