// Sources that hold host code too include this: what it declares is for hosts alone.
#pragma once
