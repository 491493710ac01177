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

// ErrNoCheckpoint is returned where a member has none.
var ErrNoCheckpoint = fmt.Errorf("no checkpoint: %w", fs.ErrNotExist)

// CheckpointSizeError is returned for a checkpoint that is larger than a store takes.
type CheckpointSizeError struct {
	Member      string // its ID
	Size, Limit int    // in bytes
}

// Error names the member and both sizes.
func (e *CheckpointSizeError) Error() string {
	return fmt.Sprintf("checkpoint of member %q has %d bytes, but the maximum is %d", e.Member, e.Size, e.Limit)
}

// Checkpoint is what a store has of a member.
type Checkpoint struct {
	Data    []byte    // as it was saved
	SavedAt time.Time // by the clock of the host that saved it

	// Damage is why the newest checkpoint could not be used, where this is the one before it. Nil: this is the newest.
	Damage error
}

// Store keeps the last checkpoint of each member. It must be safe for concurrent use, and keep nothing of the slices that it
// is given or returns.
type Store interface {
	// Save replaces the member's checkpoint.
	Save(member string, data []byte) error
	// Load fails with ErrNoCheckpoint where there is none.
	Load(member string) (Checkpoint, error)
	// Delete removes the member's checkpoint, if there is one.
	Delete(member string) error
}

// SaveCheckpoint keeps v, as JSON, as the member's checkpoint. A later member of the same id finds it, in another process
// too if the Pool's Store outlives this one.
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

// LoadCheckpoint reads the member's checkpoint into v. It fails with ErrNoCheckpoint where there is none. Where the newest is
// damaged, it reads the one before, and says so in Checkpoint.Damage.
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

// DeleteCheckpoint removes the member's checkpoint, as when its work is done.
func (m *Member) DeleteCheckpoint() error { return m.pool.cfg.Store.Delete(m.id) }

// MemoryStore keeps checkpoints as long as the process lives.
type MemoryStore struct {
	mu    sync.Mutex
	saved map[string]Checkpoint
}

// NewMemoryStore returns an empty MemoryStore.
func NewMemoryStore() *MemoryStore { return &MemoryStore{saved: make(map[string]Checkpoint)} }

// Save keeps a copy of data.
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
