// Package archtest holds the rules of the house as tests: which package may
// import which, how long files and functions may be, and what no file may
// contain. It has no product code.
//
// Each rule is a function from parsed source to findings, so that a second
// test can show that it bites.
package archtest
