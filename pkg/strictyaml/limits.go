package strictyaml

const (
	maxPath = 4096 // bytes of a path, an address or a choice
	// shownMost is how much of a wrong value an error quotes, bytes.
	shownMost = 64
)
