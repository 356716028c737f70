#include "identity/prefix_chain.h"
