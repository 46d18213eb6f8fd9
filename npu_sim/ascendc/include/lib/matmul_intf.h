#error "lib/matmul_intf.h: the Matmul class is not modelled by this emulator; Mmad, LoadData and Fixpipe are"
