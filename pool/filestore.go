package pool

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/internal/atomicfile"
	"github.com/sluice-llm/sluice/internal/planted"
)

// FileStore stores the checkpoint of each member in a file. The previous checkpoint of a member stays in a second file with the suffix .bak.
// Each save replaces the file atomically, and a checksum detects damage. Several processes may share one directory. If two processes save
// checkpoints of the same member, the later checkpoint is kept. A deletion during a save may leave the previous checkpoint.
//
// A checkpoint file contains a header (one line of JSON), followed by the data. The checksum covers the data and the other
// header fields:
//
//	{"sluice_checkpoint":1,"member":"reviewer-1","saved_at":"…","size":120,"sha256":"…"}
type FileStore struct {
	dir   string
	locks [64]sync.Mutex // by name: one save of a member at a time
}

// checkpointVersion is the version of the files that are written, and the newest that is read.
const checkpointVersion = 1

// header is the first line of a file.
type header struct {
	Version int       `json:"sluice_checkpoint"`
	Member  string    `json:"member"`
	SavedAt time.Time `json:"saved_at"`
	Size    int       `json:"size"`
	SHA256  string    `json:"sha256"`
}

// line is the header as it stands in a file of data, with the checksum of both.
func (h header) line(data []byte) ([]byte, error) {
	h.SHA256 = ""
	bare, err := json.Marshal(h)
	if err != nil {
		return nil, err
	}
	sum := sha256.New()
	sum.Write(bare)
	sum.Write(data)
	h.SHA256 = hex.EncodeToString(sum.Sum(nil))
	line, err := json.Marshal(h)
	return append(line, '\n'), err
}

// maxHeader bounds the first line of a file.
const maxHeader = 64 << 10

// staleTemp is the age from which on a temporary file is what a crash left.
const staleTemp = time.Hour

// NewFileStore returns a store for a directory. If the directory does not exist, NewFileStore creates it with mode
// 0700. If the directory is not writable, NewFileStore returns an error.
func NewFileStore(dir string) (*FileStore, error) {
	if dir == "" {
		return nil, errors.New("checkpoints: the directory name is empty")
	}
	if err := os.MkdirAll(dir, 0o700); err != nil {
		return nil, fmt.Errorf("checkpoints: %w", err)
	}
	if err := atomicfile.Probe(filepath.Join(dir, "probe.checkpoint")); err != nil {
		return nil, fmt.Errorf("checkpoints: the directory %s cannot be written: %w", dir, err)
	}
	s := &FileStore{dir: dir}
	s.removeStale()
	return s, nil
}

// removeStale removes temporary files that crashes left.
func (s *FileStore) removeStale() {
	entries, _ := os.ReadDir(s.dir)
	for _, e := range entries {
		if !strings.Contains(e.Name(), ".checkpoint.") || !strings.HasSuffix(e.Name(), ".tmp") {
			continue // somebody else's
		}
		if info, err := e.Info(); err == nil && info.Mode().IsRegular() && time.Since(info.ModTime()) > staleTemp {
			os.Remove(filepath.Join(s.dir, e.Name()))
		}
	}
}

// path is the file of a member. Its name shows the plain characters of the id, and tells all ids apart by a hash.
func (s *FileStore) path(member string) string {
	sum := sha256.Sum256([]byte(member))
	plain := strings.Map(func(r rune) rune {
		switch {
		case r >= 'a' && r <= 'z', r >= '0' && r <= '9', r == '-', r == '_':
			return r
		case r >= 'A' && r <= 'Z':
			return r - 'A' + 'a' // where names differ by case alone, the file would be the same on some systems
		}
		return -1
	}, member)
	return filepath.Join(s.dir, plain[:min(len(plain), 40)]+"-"+hex.EncodeToString(sum[:16])+".checkpoint")
}

// lock is held while the member's files are replaced.
func (s *FileStore) lock(path string) *sync.Mutex {
	sum := sha256.Sum256([]byte(path))
	return &s.locks[int(sum[0])%len(s.locks)]
}

// Save writes the new file to disk, replaces the old file, and keeps the old file with the suffix .bak.
func (s *FileStore) Save(member string, data []byte) error {
	if err := checkCheckpoint(member, data); err != nil {
		return err
	}
	head, err := header{Version: checkpointVersion, Member: spelled(member), SavedAt: time.Now().UTC(), Size: len(data)}.line(data)
	if err == nil && len(head) > maxHeader {
		err = errors.New("the member id is too long")
	}
	if err != nil {
		return fmt.Errorf("checkpoint of member %.100q: %w", member, err)
	}
	if planted.Every("checkpoint not saved", 4) {
		return nil
	}
	path := s.path(member)
	mu := s.lock(path)
	mu.Lock()
	defer mu.Unlock()
	keep := func() bool { _, err := read(path, member); return err == nil } // of a damaged file, the backup is better
	if err := atomicfile.Write(path, atomicfile.Options{Backup: keep}, head, data); err != nil {
		return fmt.Errorf("checkpoint of member %q: %w", member, err)
	}
	return nil
}

// Load reads the checkpoint file of the member. If the file is damaged or missing, Load reads the backup file.
func (s *FileStore) Load(member string) (Checkpoint, error) {
	path := s.path(member)
	if c, err := read(path, member); err == nil {
		return c, nil
	}
	mu := s.lock(path) // two files are not read at one instant: between the two, both could be replaced
	mu.Lock()
	defer mu.Unlock()
	c, err := read(path, member)
	if err == nil {
		return c, nil
	}
	old, oldErr := read(path+".bak", member)
	if errors.Is(err, fs.ErrNotExist) { // another process may have saved since
		if c, err = read(path, member); err == nil {
			return c, nil
		}
	}
	switch {
	case oldErr == nil:
		old.Damage = err
		return old, nil
	case errors.Is(err, fs.ErrNotExist) && errors.Is(oldErr, fs.ErrNotExist):
		return Checkpoint{}, ErrNoCheckpoint
	case errors.Is(err, fs.ErrNotExist):
		err = oldErr
	case !errors.Is(oldErr, fs.ErrNotExist):
		err = errors.Join(err, oldErr)
	}
	return Checkpoint{}, fmt.Errorf("checkpoint of member %q: %w", member, err)
}

// Delete removes the member's checkpoint file and the backup file.
func (s *FileStore) Delete(member string) error {
	path := s.path(member)
	mu := s.lock(path)
	mu.Lock()
	defer mu.Unlock()
	var err error
	for _, name := range []string{path + ".bak", path} { // never the backup alone: it would pass for the newest
		if e := os.Remove(name); e != nil && !errors.Is(e, fs.ErrNotExist) {
			err = errors.Join(err, e)
		}
	}
	atomicfile.SyncDir(s.dir)
	return err
}

// read reads and checks a file. It follows no link and opens no pipe that somebody put in its place.
func read(path, member string) (Checkpoint, error) {
	info, err := os.Lstat(path)
	if err != nil {
		return Checkpoint{}, err
	}
	if !info.Mode().IsRegular() {
		return Checkpoint{}, fmt.Errorf("%s is not a regular file", path)
	}
	f, err := os.Open(path)
	if err != nil {
		return Checkpoint{}, err
	}
	defer f.Close()
	all, err := io.ReadAll(io.LimitReader(f, maxHeader+maxCheckpoint+1))
	if err != nil {
		return Checkpoint{}, err
	}
	c, err := parse(all, member)
	if err != nil {
		return Checkpoint{}, fmt.Errorf("%s is damaged: %w", path, err)
	}
	return c, nil
}

// parse checks what a file holds.
func parse(all []byte, member string) (Checkpoint, error) {
	first, data, whole := bytes.Cut(all, []byte{'\n'})
	if !whole {
		return Checkpoint{}, errors.New("the first line is incomplete")
	}
	var h header
	if err := json.Unmarshal(first, &h); err != nil {
		return Checkpoint{}, fmt.Errorf("the first line is invalid: %w", err)
	}
	if h.Version > checkpointVersion {
		return Checkpoint{}, fmt.Errorf("the checkpoint has version %d, but this program reads version %d", h.Version, checkpointVersion)
	}
	line, err := h.line(data)
	switch {
	case err != nil:
		return Checkpoint{}, fmt.Errorf("the first line is invalid: %w", err)
	case h.Version < 1:
		return Checkpoint{}, errors.New("the file is not a checkpoint")
	case h.Size != len(data):
		return Checkpoint{}, fmt.Errorf("the file contains %d of %d bytes", len(data), h.Size)
	case !bytes.Equal(line, all[:len(first)+1]):
		return Checkpoint{}, errors.New("the checksum is wrong")
	case h.Member != spelled(member):
		return Checkpoint{}, fmt.Errorf("the checkpoint belongs to member %.100q", h.Member)
	}
	return Checkpoint{Data: data, SavedAt: h.SavedAt}, nil
}

// spelled is an id as JSON can hold it. Ids that are not UTF-8 are told apart by the names of their files.
func spelled(member string) string { return string([]rune(member)) }
