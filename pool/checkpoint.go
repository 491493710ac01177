package pool

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"sync"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// maxCheckpoint bounds what a store keeps for a member.
const maxCheckpoint = 16 << 20

// ErrNoCheckpoint is returned if the store contains no checkpoint of the member.
var ErrNoCheckpoint = fmt.Errorf("no checkpoint: %w", fs.ErrNotExist)

// CheckpointSizeError is returned for a checkpoint that exceeds the maximum size of a store.
type CheckpointSizeError struct {
	Member      string // ID of the member
	Size, Limit int    // size of the checkpoint and maximum size, in bytes
}

// Error returns a message with the member and both sizes.
func (e *CheckpointSizeError) Error() string {
	return fmt.Sprintf("checkpoint of member %q has %d bytes, but the maximum is %d", e.Member, e.Size, e.Limit)
}

// Checkpoint is the stored state of a member.
type Checkpoint struct {
	Data    []byte    // content of the checkpoint, as saved
	SavedAt time.Time // time at which the checkpoint was saved, by the clock of the saving host

	// Damage is the reason why Data is the previous checkpoint and not the newest (nil: Data is the newest checkpoint).
	Damage error
}

// Store keeps the last checkpoint of each member. Implementations of Store must be safe for concurrent use, and must
// not keep a slice that they receive or return.
type Store interface {
	// Save replaces the checkpoint of the member.
	Save(member string, data []byte) error
	// Load returns the checkpoint of the member. If no checkpoint exists, Load fails with ErrNoCheckpoint.
	Load(member string) (Checkpoint, error)
	// Delete removes the checkpoint of the member. A missing checkpoint is not an error.
	Delete(member string) error
}

// SaveCheckpoint encodes v as JSON and saves it as the checkpoint of the member. A later member with the same ID can
// load the checkpoint. If the Store outlives the process, another process can load the checkpoint too.
func (m *Member) SaveCheckpoint(v any) error {
	data, err := json.Marshal(v)
	if err != nil {
		return fmt.Errorf("checkpoint of member %q: %w", m.id, err)
	}
	if err := m.pool.cfg.Store.Save(m.id, data); err != nil {
		return err
	}
	m.pool.tell(limits.EventCheckpointSaved, m, nil)
	return nil
}

// LoadCheckpoint decodes the checkpoint of the member into v. If no checkpoint exists, the error wraps ErrNoCheckpoint.
// If the newest checkpoint is damaged, LoadCheckpoint loads the previous checkpoint and sets Checkpoint.Damage.
func (m *Member) LoadCheckpoint(v any) (Checkpoint, error) {
	c, err := m.pool.cfg.Store.Load(m.id)
	if errors.Is(err, ErrNoCheckpoint) {
		return c, fmt.Errorf("member %q: %w", m.id, err) // other errors of the stores name it
	}
	if damage := cmp.Or(err, c.Damage); damage != nil {
		m.pool.tell(limits.EventCheckpointDamaged, m, damage)
	}
	if err != nil {
		return c, err
	}
	if err := json.Unmarshal(c.Data, v); err != nil {
		return c, fmt.Errorf("checkpoint of member %q: %w", m.id, err)
	}
	m.pool.tell(limits.EventCheckpointLoaded, m, nil)
	return c, nil
}

// DeleteCheckpoint removes the checkpoint of the member, for example after the work is done.
func (m *Member) DeleteCheckpoint() error { return m.pool.cfg.Store.Delete(m.id) }

// MemoryStore keeps checkpoints in the memory of the process.
type MemoryStore struct {
	mu    sync.Mutex
	saved map[string]Checkpoint
}

// NewMemoryStore returns an empty MemoryStore.
func NewMemoryStore() *MemoryStore { return &MemoryStore{saved: make(map[string]Checkpoint)} }

// Save stores a copy of data.
func (s *MemoryStore) Save(member string, data []byte) error {
	if err := checkCheckpoint(member, data); err != nil {
		return err
	}
	c := Checkpoint{Data: append([]byte(nil), data...), SavedAt: time.Now()}
	s.mu.Lock()
	defer s.mu.Unlock()
	s.saved[member] = c
	return nil
}

// Load returns a copy of the saved checkpoint.
func (s *MemoryStore) Load(member string) (Checkpoint, error) {
	s.mu.Lock()
	c, ok := s.saved[member]
	s.mu.Unlock()
	if !ok {
		return Checkpoint{}, ErrNoCheckpoint
	}
	c.Data = append([]byte(nil), c.Data...)
	return c, nil
}

// Delete removes the saved checkpoint.
func (s *MemoryStore) Delete(member string) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	delete(s.saved, member)
	return nil
}

// checkCheckpoint refuses what no store takes.
func checkCheckpoint(member string, data []byte) error {
	if member == "" {
		return errors.New("pool: the member id of the checkpoint is empty")
	}
	if len(data) > maxCheckpoint {
		return &CheckpointSizeError{Member: member, Size: len(data), Limit: maxCheckpoint}
	}
	return nil
}
