"""Published results about single jobs with a deadline on spot instances."""
