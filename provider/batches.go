package provider

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"
)

// BatchAPI describes a provider's Batch API, which runs many requests within a day at a lower price. The zero value means that
// there is none. A number of 0 is unknown.
type BatchAPI struct {
	API      string        // whose form it has: openai, anthropic or gemini; "" is none
	Requests int           // most of them in a batch
	Bytes    int64         // most of them in a batch's file
	OneModel bool          // all requests of a batch are of one model
	PerHour  int           // most batches that can be made in an hour
	Pending  int           // most requests of all batches that have not ended
	Window   time.Duration // in which a batch ends, done or not
	Price    float64       // of a call, where a live one's is 1
	Source   string        // an address that says all this
}

// BatchesRow is BatchAPI as a file of YAML writes it. A missing field does not change the provider's.
type BatchesRow struct {
	API      *string  `yaml:"api"`
	Requests *Count   `yaml:"requests"`
	Bytes    *Count   `yaml:"bytes"`
	OneModel *bool    `yaml:"one_model"`
	PerHour  *Count   `yaml:"per_hour"`
	Pending  *Count   `yaml:"pending"`
	Window   string   `yaml:"window"`
	Price    *float64 `yaml:"price"`
	Source   string   `yaml:"source"`
}

// batchAPIs are the forms that there are.
var batchAPIs = [...]string{"openai", "anthropic", "gemini"}

// change changes what the row says of a Batch API. An api of "" says that there is none. The error is about the returned
// field.
func (b *BatchAPI) change(row *BatchesRow) (field string, err error) {
	if row == nil {
		return "", nil
	}
	if row.API != nil && *row.API == "" {
		*b = BatchAPI{}
		if *row != (BatchesRow{API: row.API}) {
			return ".api", errors.New("without an api nothing else can be said of it: leave the rest out")
		}
		return "", nil
	}
	set(&b.API, row.API)
	if !slices.Contains(batchAPIs[:], b.API) {
		return ".api", fmt.Errorf("unknown form %q of a Batch API: use one of %s", b.API, strings.Join(batchAPIs[:], ", "))
	}
	bytes := Count(b.Bytes)
	for _, f := range []struct {
		name string
		to   *int
		from *Count
	}{
		{".requests", &b.Requests, row.Requests}, {".bytes", (*int)(&bytes), row.Bytes},
		{".per_hour", &b.PerHour, row.PerHour}, {".pending", &b.Pending, row.Pending},
	} {
		if f.from != nil && *f.from <= 0 {
			return f.name, fmt.Errorf("%d is not above zero: omit the field if the number is unknown", *f.from)
		}
		set(f.to, (*int)(f.from))
	}
	b.Bytes = int64(bytes)
	if row.Window != "" {
		if b.Window, err = duration(row.Window); err != nil {
			return ".window", err
		}
	}
	if row.Price != nil && !(*row.Price > 0 && *row.Price <= 1) {
		return ".price", fmt.Errorf("%v is not a part of the live price, such as 0.5", *row.Price)
	}
	set(&b.Price, row.Price)
	set(&b.OneModel, row.OneModel)
	said(&b.Source, row.Source)
	return "", nil
}
