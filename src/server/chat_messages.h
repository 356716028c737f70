// The conversation of a chat request: messages, tools and documents, checked and brought into the
// form that chat templates expect. What a template itself objects to is its own to say.
// Thread rule: free functions over values.
#ifndef BATON_SERVER_CHAT_MESSAGES_H_
#define BATON_SERVER_CHAT_MESSAGES_H_

#include <optional>

#include "base/json.h"
#include "server/api_error.h"
#include "server/field_reader.h"
#include "server/text_frontend.h"

namespace baton::server {

// Parts of a content become one string, arguments of tool calls become objects.
std::optional<ApiError> CheckMessages(OrderedJson* messages);

// "tools", "tool_choice" and "documents". The model's calls are not parsed out of its answer, and
// it cannot be made to call: a tool_choice that asks for either is refused.
void ReadTools(FieldReader* reader, ChatRender* out);

}  // namespace baton::server

#endif  // BATON_SERVER_CHAT_MESSAGES_H_
