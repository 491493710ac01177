package control

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"time"
)

// Client asks a Server.
type Client struct {
	http  http.Client
	url   string
	token string
}

// clientTime is how long an answer may take, and mostAnswer how large it may be.
const (
	clientTime = 5 * time.Second
	mostAnswer = 16 << 20
)

// NewClient returns a client of the server at a, with a token where that asks for one. Close it.
func NewClient(a Address, token string) *Client {
	t := &http.Transport{ // no proxy: what is asked for is on this host, or on one that was named
		DialContext: func(ctx context.Context, _, _ string) (net.Conn, error) {
			var d net.Dialer
			return d.DialContext(ctx, a.Network, a.Name)
		},
		MaxIdleConns: 1,
	}
	c := &Client{url: "http://localhost", token: token}
	if a.Network == "tcp" {
		c.url = "http://" + a.Name
	}
	c.http = http.Client{Transport: t, Timeout: clientTime, CheckRedirect: func(*http.Request, []*http.Request) error {
		return http.ErrUseLastResponse
	}}
	return c
}

// Close closes the client's connections.
func (c *Client) Close() { c.http.CloseIdleConnections() }

// Status asks how the run stands. An answer that refuses is an *Error.
func (c *Client) Status(ctx context.Context) (Status, error) {
	var s Status
	err := c.ask(ctx, http.MethodGet, "/status", &s)
	return s, err
}

// ask puts the answer into what to points to.
func (c *Client) ask(ctx context.Context, method, path string, to any) error {
	req, err := http.NewRequestWithContext(ctx, method, c.url+path, http.NoBody)
	if err != nil {
		return err
	}
	if c.token != "" {
		req.Header.Set("Authorization", "Bearer "+c.token)
	}
	resp, err := c.http.Do(req)
	if err != nil {
		return err
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(io.LimitReader(resp.Body, mostAnswer))
	if err != nil {
		return err
	}
	if resp.StatusCode != http.StatusOK {
		refused := &Error{Status: resp.StatusCode}
		if json.Unmarshal(body, refused) != nil || refused.Text == "" {
			refused.Text = resp.Status
		}
		return refused
	}
	if err := json.NewDecoder(bytes.NewReader(body)).Decode(to); err != nil {
		return fmt.Errorf("what answers there is no run of Sluice: %w", err)
	}
	return nil
}
