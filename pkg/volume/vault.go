package volume

import (
	"crypto/aes"
	"crypto/cipher"
	"crypto/rand"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"

	"github.com/csi-mpath/csi-mpath/pkg/durable"
	"github.com/csi-mpath/csi-mpath/pkg/secret"
)

// keyFile holds the key of the files of secrets.
const keyFile = "key"

// keySize is that of AES-256, bytes.
const keySize = 32

// vault keeps secrets for the next process, which has nobody to ask (I8):
// sealed, so that no copy of a volume's files has them in it, in files of the
// owner only, on a file system in memory (I10).
type vault struct {
	dir  string
	aead cipher.AEAD // constant
}

// openVault reads the key, or makes it.
func openVault(dir string) (*vault, error) {
	path := filepath.Join(dir, keyFile)
	key, err := durable.Read(path, keySize)
	if errors.Is(err, fs.ErrNotExist) {
		key = make([]byte, keySize)
		if _, err := rand.Read(key); err != nil {
			return nil, err
		}
		err = durable.Write(path, key)
	}
	if err == nil && len(key) != keySize {
		err = fmt.Errorf("%s is damaged: %d bytes, want %d: remove it, and the *%s files with it", path, len(key), keySize, secretsSuffix)
	}
	if err != nil {
		return nil, err
	}
	block, err := aes.NewCipher(key)
	if err != nil {
		return nil, err
	}
	aead, err := cipher.NewGCM(block)
	return &vault{dir: dir, aead: aead}, err
}

// put keeps the secrets of a volume.
func (v *vault) put(volume string, s Secrets) error {
	if len(s) == 0 {
		return durable.Remove(secretsPath(v.dir, volume))
	}
	clear := make(map[string]string, len(s)) // a Text would hide itself
	for k, text := range s {
		clear[k] = string(text)
	}
	b, err := json.Marshal(clear)
	if err != nil {
		return err
	}
	nonce := make([]byte, v.aead.NonceSize(), v.aead.NonceSize()+len(b)+v.aead.Overhead())
	if _, err := rand.Read(nonce); err != nil {
		return err
	}
	return durable.Write(secretsPath(v.dir, volume), v.aead.Seal(nonce, nonce, b, []byte(volume)))
}

// get returns nil if there are none.
func (v *vault) get(volume string) (Secrets, error) {
	path := secretsPath(v.dir, volume)
	b, err := durable.Read(path, maxRecord)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	n := v.aead.NonceSize()
	if len(b) < n {
		return nil, fmt.Errorf("%s is damaged: %d bytes", path, len(b))
	}
	b, err = v.aead.Open(nil, b[:n], b[n:], []byte(volume))
	if err != nil {
		return nil, fmt.Errorf("%s is damaged, or sealed with another key", path)
	}
	var clear map[string]string
	if err := json.Unmarshal(b, &clear); err != nil {
		return nil, fmt.Errorf("%s is damaged", path)
	}
	s := make(Secrets, len(clear))
	for k, text := range clear {
		s[k] = secret.Text(text)
	}
	return s, s.check()
}

// remove forgets the secrets of a volume; there may be none.
func (v *vault) remove(volume string) error { return durable.Remove(secretsPath(v.dir, volume)) }
