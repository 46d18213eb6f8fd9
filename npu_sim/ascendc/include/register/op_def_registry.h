// For host code, which is not compiled here.
#pragma once
