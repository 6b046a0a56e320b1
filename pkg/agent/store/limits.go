package store

// maxOvercommit bounds how many bytes are promised for each that there is.
const maxOvercommit = 1000
