#include "server/api_error.h"

namespace baton::server {
namespace {

std::string_view TypeName(int status) {
  switch (status) {
    case 400:
    case 413:
      return "BadRequestError";
    case 401:
      return "AuthenticationError";
    case 404:
      return "NotFoundError";
    case 405:
      return "MethodNotAllowedError";
    case 429:
      return "RateLimitError";
    case 503:
      return "ServiceUnavailableError";
    default:
      return "InternalServerError";
  }
}

}  // namespace

ApiError BadRequest(std::string_view message, std::string_view param) {
  ApiError error;
  error.status = 400;
  error.message = std::string(message);
  error.param = std::string(param);
  return error;
}

ApiError ErrorFromStatus(const Status& status) {
  ApiError error;
  error.message = std::string(status.message());
  if (const auto reason = ReasonOf(status)) {
    error.reason = std::string(ReasonName(*reason));
    error.status = *reason == Reason::kNoCapacity ? 429 : 500;
  } else {
    switch (status.code()) {
      case absl::StatusCode::kInvalidArgument:
      case absl::StatusCode::kOutOfRange:
        error.status = 400;
        break;
      case absl::StatusCode::kNotFound:
        error.status = 404;
        break;
      case absl::StatusCode::kResourceExhausted:
        error.status = 429;
        break;
      case absl::StatusCode::kUnavailable:
        error.status = 503;
        break;
      default:
        error.status = 500;
        break;
    }
  }
  if (error.status == 429 || error.status == 503) error.retry_after_s = 1;
  if (error.message.empty()) error.message = "request failed";
  return error;
}

Json ErrorJson(const ApiError& error) {
  Json inner;
  inner["message"] = error.message;
  inner["type"] = std::string(TypeName(error.status));
  inner["param"] = error.param.empty() ? Json() : Json(error.param);
  inner["code"] = error.reason.empty() ? Json(error.status) : Json(error.reason);
  return Json{{"error", std::move(inner)}};
}

HttpResponse ErrorResponse(const ApiError& error) {
  HttpResponse response;
  response.status = error.status;
  if (error.retry_after_s > 0) {
    response.headers.emplace_back("Retry-After", std::to_string(error.retry_after_s));
  }
  if (error.status == 401) response.headers.emplace_back("WWW-Authenticate", "Bearer");
  response.body = DumpJson(ErrorJson(error));
  return response;
}

}  // namespace baton::server
