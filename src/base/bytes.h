// Bounded little-endian encoding. ByteReader never reads past its span: a short or oversized
// record turns into ok() == false, so hostile counts cannot reach memory. Thread rule: plain values.
#ifndef BATON_BASE_BYTES_H_
#define BATON_BASE_BYTES_H_

#include <bit>
#include <cstdint>
#include <cstring>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/types.h"

namespace baton {

static_assert(std::endian::native == std::endian::little, "Baton's formats are little-endian");

using ByteSpan = std::span<const std::byte>;
using MutableByteSpan = std::span<std::byte>;

template <class T>
ByteSpan AsBytes(const T& v) {
  return std::as_bytes(std::span<const typename T::value_type>(v));
}

class ByteWriter {
 public:
  template <class T>
    requires std::is_integral_v<T> || std::is_floating_point_v<T>
  void Put(T v) {
    const auto* p = reinterpret_cast<const uint8_t*>(&v);
    out_.insert(out_.end(), p, p + sizeof(T));
  }
  template <class Tag, size_t N>
  void Put(const StrongBytes<Tag, N>& v) {
    out_.insert(out_.end(), v.bytes.begin(), v.bytes.end());
  }
  template <class Tag, class Rep>
  void Put(StrongInt<Tag, Rep> v) {
    Put(v.value);
  }
  void PutRaw(ByteSpan s) {
    const auto* p = reinterpret_cast<const uint8_t*>(s.data());
    out_.insert(out_.end(), p, p + s.size());
  }
  // u32 length, then the bytes.
  void PutString(std::string_view s) {
    Put(static_cast<uint32_t>(s.size()));
    out_.insert(out_.end(), s.begin(), s.end());
  }
  const std::vector<uint8_t>& data() const { return out_; }
  std::vector<uint8_t> Take() { return std::move(out_); }

 private:
  std::vector<uint8_t> out_;
};

class ByteReader {
 public:
  explicit ByteReader(ByteSpan in) : in_(in) {}
  template <class T>
    requires std::is_integral_v<T> || std::is_floating_point_v<T>
  T Get() {
    T v{};
    ReadInto(&v, sizeof(T));
    return v;
  }
  template <class Bytes>
    requires requires { Bytes::kSize; }
  Bytes Get() {
    Bytes v{};
    ReadInto(v.bytes.data(), Bytes::kSize);
    return v;
  }
  // A u32-counted string of at most `max` bytes; longer marks the reader bad.
  std::string GetString(size_t max) {
    const uint32_t n = Get<uint32_t>();
    if (!ok_ || n > max || n > remaining()) {
      ok_ = false;
      return {};
    }
    std::string s(reinterpret_cast<const char*>(in_.data()) + pos_, n);
    pos_ += n;
    return s;
  }
  ByteSpan GetRaw(size_t n) {
    if (!ok_ || n > remaining()) {
      ok_ = false;
      return {};
    }
    ByteSpan s = in_.subspan(pos_, n);
    pos_ += n;
    return s;
  }
  // False once any read went past the end.
  bool ok() const { return ok_; }
  // True if every byte was consumed and no read failed: trailing bytes are an error to refuse.
  bool done() const { return ok_ && pos_ == in_.size(); }
  size_t remaining() const { return in_.size() - pos_; }

 private:
  void ReadInto(void* dst, size_t n) {
    if (!ok_ || n > remaining()) {
      ok_ = false;
      return;
    }
    std::memcpy(dst, in_.data() + pos_, n);
    pos_ += n;
  }
  ByteSpan in_;
  size_t pos_ = 0;
  bool ok_ = true;
};

}  // namespace baton

#endif  // BATON_BASE_BYTES_H_
