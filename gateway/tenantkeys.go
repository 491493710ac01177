package gateway

import (
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/base64"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"time"

	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/regular"
)

// KeyFile is the path of the file that tells tenants by their keys. It holds no key, but the SHA-256 of each.
type KeyFile string

// KeyPrefix begins every key.
const KeyPrefix = "slk-"

// ErrNoTenant is matched by the error of what is asked of a tenant that a KeyFile does not have.
var ErrNoTenant = errors.New("no such tenant")

// KeyedTenant is a tenant as a KeyFile has it.
type KeyedTenant struct {
	Tenant
	Created time.Time `json:"created_at"`
	SHA256  string    `json:"sha256"` // of its key, in hexadecimal
}

// keyDocument is what a KeyFile holds.
type keyDocument struct {
	Version int           `json:"version"`
	Keys    []KeyedTenant `json:"keys"`
}

// Add makes a key for a tenant that has none, and returns it. Nobody can find it out again.
func (f KeyFile) Add(t Tenant) (key string, err error) {
	if err := t.Check(); err != nil {
		return "", err
	}
	var secret [32]byte
	_, _ = rand.Read(secret[:]) // it never fails
	key = KeyPrefix + base64.RawURLEncoding.EncodeToString(secret[:])
	sum := sha256.Sum256([]byte(key))
	err = f.change(func(doc *keyDocument) error {
		if slices.ContainsFunc(doc.Keys, func(k KeyedTenant) bool { return k.Name == t.Name }) {
			return fmt.Errorf("tenant %s has a key: revoke it first, or take another name", t.Name)
		}
		doc.Keys = append(doc.Keys, KeyedTenant{Tenant: t, Created: time.Now().UTC().Truncate(time.Second), SHA256: hex.EncodeToString(sum[:])})
		return nil
	})
	if err != nil {
		return "", err
	}
	return key, nil
}

// Revoke takes a tenant and its key out. A gateway at work refuses the key from its next call on.
func (f KeyFile) Revoke(name string) error {
	return f.change(func(doc *keyDocument) error {
		n := len(doc.Keys)
		doc.Keys = slices.DeleteFunc(doc.Keys, func(k KeyedTenant) bool { return k.Name == name })
		if len(doc.Keys) == n {
			return fmt.Errorf("%w: %q", ErrNoTenant, name)
		}
		return nil
	})
}

// Tenants returns those that the file has; none if there is no file.
func (f KeyFile) Tenants() ([]KeyedTenant, error) {
	doc, err := f.read()
	return doc.Keys, err
}

// read reads and checks the file.
func (f KeyFile) read() (doc keyDocument, err error) {
	file, err := regular.Open(string(f))
	if errors.Is(err, fs.ErrNotExist) {
		return keyDocument{Version: 1}, nil
	}
	if err != nil {
		return doc, fmt.Errorf("keys: %w", err)
	}
	defer file.Close()
	info, err := file.Stat()
	switch {
	case err != nil:
		return doc, fmt.Errorf("keys: %w", err)
	case runtime.GOOS != "windows" && info.Mode().Perm()&0o022 != 0:
		return doc, fmt.Errorf("keys: others may write %s: take that from them by chmod 600", f)
	}
	const most = 64 << 20
	dec := json.NewDecoder(io.LimitReader(file, most))
	dec.DisallowUnknownFields()
	if err := dec.Decode(&doc); err != nil {
		return doc, fmt.Errorf("keys: %s: %w", f, err)
	}
	if _, err := dec.Token(); err != io.EOF {
		return doc, fmt.Errorf("keys: %s: something follows its end", f)
	}
	if err := doc.check(); err != nil {
		return doc, fmt.Errorf("keys: %s: %w", f, err)
	}
	return doc, nil
}

func (doc *keyDocument) check() error {
	if doc.Version != 1 {
		return fmt.Errorf("version %d is not known here", doc.Version)
	}
	seen := make(map[string]bool)
	for _, k := range doc.Keys {
		if err := k.Check(); err != nil {
			return err
		}
		sum, err := hex.DecodeString(k.SHA256)
		switch {
		case err != nil || len(sum) != sha256.Size:
			return fmt.Errorf("tenant %s: sha256 is not one", k.Name)
		case seen[k.Name] || seen[string(sum)]:
			return fmt.Errorf("tenant %s: two have the same name or key", k.Name)
		}
		seen[k.Name], seen[string(sum)] = true, true
	}
	return nil
}

// change replaces the file by what edit makes of it. Others that do so at the same time wait.
func (f KeyFile) change(edit func(*keyDocument) error) error {
	path, err := followed(string(f))
	if err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return fmt.Errorf("keys: %w", err)
	}
	return atomicfile.Locked(context.Background(), path, func() error {
		doc, err := KeyFile(path).read()
		if err != nil {
			return err
		}
		if err := edit(&doc); err != nil {
			return err
		}
		if err := replaceFile(path, doc); err != nil {
			return fmt.Errorf("keys: %w", err)
		}
		return nil
	})
}
