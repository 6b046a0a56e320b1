// Package product tests the real csi-mpath binary as a block device of a real
// kernel: file systems on it, the process killed under load, targets that are
// lost, silent or late.
//
// CI runs a few rounds of each; make vm-test LONG=1 runs as many as the project
// promises, and KILLS=20 chooses for the kill tests alone. Errors fail a test;
// times are reported beside those of the same load without a fault.
package product
