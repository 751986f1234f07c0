#pragma once
/// `status_text`: a text that is nearly always empty.

#include <concepts>
#include <cstddef>
#include <string>
#include <string_view>
#include <utility>

namespace wreload {

/// Reads as a `std::string`, but is one pointer, null while it is empty: a status is made and dropped several times a
/// load, and three empty strings would cost more than the load's look-up.
class status_text {
 public:
  status_text() = default;
  status_text(std::string text) : text_(text.empty() ? nullptr : new std::string(std::move(text))) {}
  status_text(const char* text) : status_text(std::string(text)) {}
  status_text(const status_text& other) : text_(other.text_ == nullptr ? nullptr : new std::string(*other.text_)) {}
  status_text(status_text&& other) noexcept : text_(std::exchange(other.text_, nullptr)) {}
  status_text& operator=(status_text other) noexcept {
    std::swap(text_, other.text_);
    return *this;
  }
  ~status_text() {
    if (text_ != nullptr) drop();
  }

  const std::string& str() const {
    static const std::string nothing = {};
    return text_ == nullptr ? nothing : *text_;
  }
  operator const std::string&() const { return str(); }
  operator std::string_view() const { return str(); }

  bool empty() const { return text_ == nullptr; }
  std::size_t size() const { return str().size(); }
  const char* c_str() const { return str().c_str(); }
  bool starts_with(std::string_view text) const { return str().starts_with(text); }
  bool ends_with(std::string_view text) const { return str().ends_with(text); }
  std::size_t find(std::string_view text) const { return str().find(text); }
  status_text& operator+=(std::string_view text) { return *this = str() + std::string(text); }

  friend std::string operator+(const status_text& a, std::string_view b) { return a.str() + std::string(b); }
  friend std::string operator+(std::string_view a, const status_text& b) { return std::string(a) + b.str(); }
  friend bool operator==(const status_text& a, const status_text& b) { return a.str() == b.str(); }
  template <std::convertible_to<std::string_view> Text>
  friend bool operator==(const status_text& a, const Text& b) {
    return a.str() == std::string_view(b);
  }

 private:
  __attribute__((noinline)) void drop() noexcept { delete text_; }

  std::string* text_ = nullptr;  ///< owned; never empty
};

static_assert(sizeof(status_text) == sizeof(void*));

}  // namespace wreload
