"""The service behind `ctta serve`: streams of images in, predictions out, learning afterwards."""
