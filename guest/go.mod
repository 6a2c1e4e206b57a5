module github.com/keelson-dev/keelson/guest

go 1.26.0

require (
	github.com/google/go-cmp v0.7.0
	github.com/klauspost/compress v1.20.3
	github.com/u-root/u-root v0.16.0
	github.com/ulikunitz/xz v0.5.17
	golang.org/x/sys v0.49.0
)

require (
	github.com/dustin/go-humanize v1.0.1 // indirect
	github.com/pierrec/lz4/v4 v4.1.22 // indirect
	github.com/u-root/uio v0.0.0-20240224005618-d2acac8f3701 // indirect
)
