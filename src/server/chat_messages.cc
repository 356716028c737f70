#include "server/chat_messages.h"

#include <string>
#include <utility>

#include "server/cat.h"

namespace baton::server {
namespace {

constexpr size_t kMessagesMax = 4096;
constexpr size_t kToolsMax = 1024;

bool HasToolCalls(const OrderedJson& message) {
  const auto calls = message.find("tool_calls");
  return calls != message.end() && !calls->is_null() && !calls->empty();
}

// Templates print a call's arguments as an object; the API carries them as JSON text.
std::optional<ApiError> ReadToolCalls(size_t index, OrderedJson* message) {
  if (!HasToolCalls(*message)) return std::nullopt;
  const std::string name = Cat("messages[", index, "].tool_calls");
  OrderedJson& calls = (*message)["tool_calls"];
  if (!calls.is_array() || calls.size() > kToolsMax) {
    return BadRequest(Cat(name, " must be a list of calls, got ", ShowJson(calls)), "messages");
  }
  for (size_t i = 0; i < calls.size(); ++i) {
    const bool ok = calls[i].is_object() && calls[i].contains("function") &&
                    calls[i]["function"].is_object() && calls[i]["function"].contains("name") &&
                    calls[i]["function"]["name"].is_string();
    if (!ok) {
      return BadRequest(
          Cat(name, "[", i, "] must be {\"type\": \"function\", \"function\": {\"name\", ",
              "\"arguments\"}}, got ", ShowJson(calls[i])),
          "messages");
    }
    OrderedJson& function = calls[i]["function"];
    OrderedJson arguments = function.value("arguments", OrderedJson());
    if (arguments.is_string()) {
      const std::string text = arguments.get<std::string>();
      auto parsed = ParseJsonOrdered(text.empty() ? "{}" : text);
      if (!parsed.ok()) {
        return BadRequest(
            Cat(name, "[", i, "].function.arguments is not JSON: ", ShowJson(arguments)),
            "messages");
      }
      arguments = *std::move(parsed);
    }
    if (arguments.is_null()) arguments = OrderedJson::object();
    function["arguments"] = std::move(arguments);
  }
  return std::nullopt;
}

// Content given as a list of parts becomes one string, which is what text templates expect.
std::optional<ApiError> FlattenContent(size_t index, OrderedJson* message) {
  const std::string name = Cat("messages[", index, "].content");
  const auto it = message->find("content");
  if (it == message->end() || it->is_null() || it->is_string()) {
    if (it != message->end() && it->is_string()) return std::nullopt;
    // A message that only calls tools says nothing.
    if (HasToolCalls(*message)) {
      (*message)["content"] = "";
      return std::nullopt;
    }
    return BadRequest(Cat(name, " must be a string or a list of text parts, got null"), "messages");
  }
  if (!it->is_array()) {
    return BadRequest(Cat(name, " must be a string or a list of text parts, got ", ShowJson(*it)),
                      "messages");
  }
  std::string text;
  for (const OrderedJson& part : *it) {
    const bool ok = part.is_object() && part.value("type", OrderedJson()) == "text" &&
                    part.contains("text") && part["text"].is_string();
    if (!ok) {
      return BadRequest(Cat(name, " holds ", ShowJson(part),
                            "; only parts {\"type\": \"text\", \"text\": ...} are supported"),
                        "messages");
    }
    if (!text.empty()) text += "\n";
    text += part["text"].get<std::string>();
  }
  *it = std::move(text);
  return std::nullopt;
}

}  // namespace

std::optional<ApiError> CheckMessages(OrderedJson* messages) {
  if (!messages->is_array() || messages->empty() || messages->size() > kMessagesMax) {
    return BadRequest(Cat("messages must be a list of 1 to ", kMessagesMax,
                          " objects {\"role\", \"content\"}, got ", ShowJson(*messages)),
                      "messages");
  }
  for (size_t i = 0; i < messages->size(); ++i) {
    OrderedJson& message = (*messages)[i];
    if (!message.is_object() || !message.contains("role") || !message["role"].is_string() ||
        message["role"].get_ref<const std::string&>().empty()) {
      return BadRequest(
          Cat("messages[", i, "] must be an object with a role such as \"user\", got ",
              ShowJson(message)),
          "messages");
    }
    if (auto error = ReadToolCalls(i, &message)) return error;
    if (auto error = FlattenContent(i, &message)) return error;
  }
  return std::nullopt;
}

void ReadTools(FieldReader* reader, ChatRender* out) {
  if (const OrderedJson* tools = reader->Find("tools")) {
    if (!tools->is_array() || tools->size() > kToolsMax)
      return reader->FailType("tools", Cat("a list of at most ", kToolsMax, " functions"), *tools);
    for (const OrderedJson& tool : *tools) {
      if (!tool.is_object())
        return reader->FailType("tools", "a list of objects {\"type\", \"function\"}", *tools);
    }
    if (!tools->empty()) out->tools = *tools;
  }
  if (const OrderedJson* choice = reader->Find("tool_choice")) {
    if (*choice != "auto" && *choice != "none") {
      return reader->Fail(
          BadRequest(Cat("tool_choice must be \"auto\" or \"none\", got ", ShowJson(*choice),
                         "; a call cannot be enforced here, ask for it in a message"),
                     "tool_choice"));
    }
    if (*choice == "none") out->tools = OrderedJson();
  }
  if (const OrderedJson* documents = reader->Find("documents")) {
    if (!documents->is_array() || documents->size() > kToolsMax) {
      return reader->FailType("documents", Cat("a list of at most ", kToolsMax, " documents"),
                              *documents);
    }
    for (const OrderedJson& document : *documents) {
      if (!document.is_object())
        return reader->FailType("documents", "a list of objects", *documents);
    }
    if (!documents->empty()) out->documents = *documents;
  }
}

}  // namespace baton::server
