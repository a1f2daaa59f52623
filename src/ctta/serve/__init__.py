"""The service behind `ctta serve`: streams of images in, answers out, learning afterwards."""
