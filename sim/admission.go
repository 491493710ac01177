package sim

import (
	"context"
	"time"

	"github.com/sluice-llm/sluice/limits"
)

// admit charges a call and draws how it will go, or says why it may not pass.
func (s *Server) admit(c *call) *refusal {
	s.mu.Lock()
	defer s.mu.Unlock()
	c.admitted = time.Now()
	if s.start.IsZero() {
		s.start = c.admitted
	}
	now := c.admitted.Sub(s.start)
	no, refused := s.judgeLocked(c, now)
	if !s.config.NoHeaders {
		s.quotasLocked(c, now)
	}
	s.stats.Requests++
	if refused {
		no.vague = no.vague || s.config.VagueBodies
		no.hint = no.hint && s.config.RetryAfter != RetryAfterNone
		s.stats.Refused[no.name()]++
		s.stats.Throttled++
		return &no
	}
	var attempt uint32
	if !s.config.NoStats || s.config.perAttempt() {
		account := s.accounts[c.hash]
		attempt = account.admitted
		account.admitted++
		s.accounts[c.hash] = account
	}
	c.plan = s.config.plan(c.hash, attempt, c.perChoice*c.choices)
	s.open++
	s.stats.Peak = max(s.stats.Peak, s.open)
	s.stats.InputTokens += c.input
	return nil
}

// judgeLocked charges all that a call costs, or says why it may not pass.
func (s *Server) judgeLocked(c *call, now time.Duration) (no refusal, refused bool) {
	if a := s.accounts[c.hash]; s.config.throttled(c.hash, a.admitted+a.strays) {
		a.strays++
		s.accounts[c.hash] = a
		return refusal{reason: reasonStray, vague: true}, true
	}
	price := c.cost(s.config.Charge)
	return s.budgets.judge(&s.config, now, &price, s.open, s.paid)
}

func (s *Server) quotasLocked(c *call, now time.Duration) {
	c.quotas = s.budgets.quotas(now)
	if s.config.DailyHeaders {
		c.quotas[limits.Requests] = c.quotas[limits.RequestsPerDay]
	}
}

// enter passes the silent queue; it reports false if ctx ended before.
func (s *Server) enter(ctx context.Context) bool {
	s.mu.Lock()
	if s.config.Queue == 0 || s.serving < s.config.Queue {
		s.serving++
		s.mu.Unlock()
		return true
	}
	turn := make(chan struct{})
	s.queue = append(s.queue, turn)
	s.mu.Unlock()
	select {
	case <-turn:
		return true
	case <-ctx.Done():
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	for i, other := range s.queue {
		if other == turn {
			s.queue = append(s.queue[:i], s.queue[i+1:]...)
			return false
		}
	}
	s.nextLocked() // the turn came meanwhile: pass it on
	return false
}

// nextLocked gives the place of a call that was served to the next in line.
func (s *Server) nextLocked() {
	if len(s.queue) == 0 {
		s.serving--
		return
	}
	close(s.queue[0])
	s.queue = s.queue[1:]
}

// ending is how an admitted call ended.
type ending int

const (
	answered ending = iota
	failed
	abandoned // by the client
)

// leave ends an admitted call, served or still queued, of whose answer output
// tokens were produced and not yet charged.
func (s *Server) leave(c *call, e ending, served bool, output int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.open--
	if served {
		s.nextLocked()
	}
	s.chargeLocked(output)
	switch e {
	case answered:
		s.stats.Answered++
		s.paid++
		if !s.config.NoStats {
			account := s.accounts[c.hash]
			account.paid++
			s.accounts[c.hash] = account
		}
	case failed:
		s.stats.Faulted++
	case abandoned:
		s.stats.Abandoned++
	}
}

// produced charges tokens of an answer that goes on.
func (s *Server) produced(output int) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.chargeLocked(output)
}

func (s *Server) chargeLocked(output int) {
	s.stats.OutputTokens += output
	if s.config.Charge == limits.ChargeActual && output > 0 {
		s.budgets.produced(time.Since(s.start), output)
	}
}
