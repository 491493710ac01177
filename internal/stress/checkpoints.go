package stress

import (
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/sluice-llm/sluice/pool"
)

// note is what a member keeps as its checkpoint.
type note struct {
	Member string `json:"member"`
	Writer int    `json:"writer"`
	Serial int64  `json:"serial"`
	Text   string `json:"text"`
	Sum    string `json:"sum"`
}

func newNote(member string, writer int, serial int64, length int) note {
	n := note{Member: member, Writer: writer, Serial: serial, Text: strings.Repeat(fmt.Sprint(serial%10), length)}
	n.Sum = n.sum()
	return n
}

func (n *note) sum() string {
	sum := sha256.Sum256(fmt.Appendf(nil, "%s|%d|%d|%s", n.Member, n.Writer, n.Serial, n.Text))
	return hex.EncodeToString(sum[:])
}

// hammering is members whose checkpoints are written and read from several sides at once, beside their calls.
func hammering(s *step) {
	for i := range 4 {
		s.member(fmt.Sprintf("keeper/../%d", i), pool.MemberConfig{Kind: "keeper"}, func(a *agent) {
			var all sync.WaitGroup
			var saved saves
			for w := range saved {
				all.Add(1)
				s.goes(func() {
					defer all.Done()
					(&agent{Member: a.Member, s: s, id: a.id}).begin().writes(w, &saved)
				})
			}
			for !s.over() {
				s.r.read(a.Member, saved.least())
				a.call(s.ctx, callConfig{})
			}
			all.Wait()
		})
	}
	s.rest()
}

// saves are the newest serials that the writers of a member have saved; 0 is none.
type saves [2]atomic.Int64

// oldest are the serials of each writer below which nothing may be read.
type oldest [len(saves{})]int64

func (s *saves) least() (o oldest) {
	for w := range s {
		o[w] = s[w].Load()
	}
	return o
}

// writes saves one checkpoint after the other, and reads each.
func (a *agent) writes(writer int, saved *saves) {
	for serial := int64(1); !a.s.over(); serial++ {
		least := saved.least()
		for w := range least { // what is saved by now is replaced
			least[w]++
		}
		least[writer] = serial
		if err := a.SaveCheckpoint(newNote(a.id, writer, serial, int(serial%97)*41)); err != nil {
			a.s.fail(err)
			return
		}
		saved[writer].Store(serial)
		a.s.r.kept()
		a.s.r.read(a.Member, least)
		a.s.sleep(a.s.ctx, a.upTo(8*sampleEvery))
	}
}

// kept counts a checkpoint that was saved.
func (r *run) kept() {
	r.mu.Lock()
	r.checkpoints++
	r.mu.Unlock()
}

// read reads a member's checkpoint, and notes one that is not as it was saved, or that another one has replaced.
func (r *run) read(m *pool.Member, least oldest) {
	var n note
	c, err := m.LoadCheckpoint(&n)
	if errors.Is(err, pool.ErrNoCheckpoint) && least == (oldest{}) {
		return
	}
	if err != nil || c.Damage != nil || n.Member != m.ID() || n.Sum != n.sum() || n.Serial < least[n.Writer] {
		r.mu.Lock()
		r.damaged++
		r.mu.Unlock()
	}
}
