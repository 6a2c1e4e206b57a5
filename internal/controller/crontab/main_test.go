package crontab

import (
	"testing"

	"github.com/keelson-dev/keelson/internal/testing/env"
)

func TestMain(m *testing.M) { env.Main(m) }
