package demo

// maxFile bounds a certificate or key, bytes (I6).
const maxFile = 64 << 10
