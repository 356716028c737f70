#include "identity/content_identity.h"
