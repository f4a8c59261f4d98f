#include "proto/wire/codec.h"
