// Package reclaim tests that the kernel can write a volume's dirty pages back
// through the product when these pages have taken the memory: a small machine
// (vmrun.flags) writes more than it has.
//
// The array is a process of its own, as little in need of memory as the product
// is: were it on another machine, nobody would ask.
package reclaim
